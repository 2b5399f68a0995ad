"""tbloom's SitemapSpider: each page has its lastmod as its version."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.http import Response
from scrapy.utils.sitemap import Sitemap

from tbloom.errors import ConfigError
from tbloom.scrapy import SitemapSpider
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.projects import marked, path_of, times
from tests.helpers.schedulers import DONE
from tests.helpers.website import Handler, served

PAGES, CHANGED, DAY = 120, 20, "2026-11-{:02}T10:00:00Z"


class Maps(Handler):
    """A robots.txt that names an index of three sitemaps, with all pages of ``server.lastmods``."""

    def get(self) -> None:
        server: Any = self.server
        server.asked[self.path[1:]] += 1
        pages = [*server.lastmods]
        if self.path == "/robots.txt":
            self.answer(200, f"Sitemap: {server.url}/index.xml".encode())
        elif self.path == "/index.xml":
            self.tell("sitemapindex", "sitemap", {f"map-{n}.xml": server.maps[n] for n in range(3)})
        elif self.path.startswith("/map-"):
            some = pages[int(self.path[5]) :: 3]
            self.tell("urlset", "url", {page: server.lastmods[page] for page in some})
        else:
            self.answer(200, b"<html>%s</html>" % self.path.encode())

    def tell(self, kind: str, entry: str, lastmods: dict[str, str]) -> None:
        server: Any = self.server
        entries = [
            f"<{entry}><loc>{server.url}/{path}</loc>"
            + f"<lastmod>{lastmod}</lastmod>" * bool(lastmod)
            + f"</{entry}>"
            for path, lastmod in lastmods.items()
        ]
        text = f'<?xml version="1.0"?><{kind} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        self.answer(200, f"{text}{''.join(entries)}</{kind}>".encode(), Content_Type="text/xml")


class Shop(SitemapSpider):
    """Reads the sitemap of a site. With ``dies``, its crawler gets a SIGKILL at its first page."""

    name = "shop"
    site: str
    dies = False

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.sitemap_urls = [f"{self.site}/robots.txt"]

    def parse(self, response: Response) -> Any:
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"page": path_of(response)}


@pytest.fixture
def maps() -> Iterator[Any]:
    lastmods = {f"page-{number}": DAY.format(1) for number in range(PAGES)}
    with served(Maps, lastmods=lastmods, maps=[""] * 3, asked=Counter[str]()) as site:
        yield site


@pytest.fixture
def fleet(url: str, name: str, maps: Any) -> Any:
    """Crawls, and returns which pages of the site were asked for, how often."""

    def start(**given: Any) -> Forked:
        settings = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_ERROR_RATE": 1e-9, **DONE}
        settings |= {"CONCURRENT_REQUESTS_PER_DOMAIN": 8}
        if given.get("dies"):  # a living one must not be taken for dead
            settings["TBLOOM_SESSION_TTL"] = 1
        return Forked(crawls.run, [[(Shop, {"site": maps.url, **given})]], **settings)

    def fleet(*crawlers: dict[str, Any]) -> Counter[str]:
        maps.asked.clear()
        running = list[Forked]()
        for given in crawlers:
            if running and running[0].is_running and crawlers[0].get("dies"):
                while not any(path.startswith("page-") for path in [*maps.asked]):
                    time.sleep(0.02)  # it has claimed all pages by then, or most
            running.append(start(**given))
        for crawl in running:
            for end in crawl.result() or ():
                assert ("finished", []) == (end["finish_reason"], end["failures"])
        return Counter(
            {path: number for path, number in maps.asked.items() if path.startswith("page-")}
        )

    return fleet


def change(site: Any, day: int) -> set[str]:
    """Give every sixth page, another one each day, a later lastmod; return these."""
    changed = {f"page-{number}" for number in range(day, PAGES, PAGES // CHANGED)}
    site.lastmods.update(dict.fromkeys(changed, DAY.format(day)))
    return changed


def test_of_a_sitemap_exactly_the_changed_pages_are_fetched_again(fleet: Any, maps: Any) -> None:
    """crawler#616, indieweb-search#71: by one crawler, by two, and after kill -9 of one of two."""
    assert dict.fromkeys(maps.lastmods, 1) == fleet({}, {})
    assert {} == fleet({})
    for day, crawlers in ((2, [{}]), (3, [{}, {}])):
        assert dict.fromkeys(change(maps, day), 1) == fleet(*crawlers)
    changed = change(maps, 4)
    asked = fleet({"dies": True}, {})
    assert changed == asked.keys()
    assert 2 >= max(asked.values())  # those that were in work when the crawler was killed
    assert {} == fleet({}, {})


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, {"page-0", "page-1", "page-3"}),
        ({"sitemap_lastmod": "day"}, {"page-3"}),
        ({"sitemap_lastmod": False}, set()),
    ],
)
def test_a_lastmod_may_count_by_its_day_or_not_at_all(
    fleet: Any, maps: Any, attributes: dict[str, Any], expected: set[str]
) -> None:
    """Whatever the index says, each crawl reads all sitemaps."""
    maps.maps = [DAY.format(1)] * 3
    maps.lastmods = {f"page-{number}": DAY.format(1) for number in range(6)}
    fleet(attributes)
    maps.lastmods["page-0"] = maps.lastmods["page-1"] = "2026-11-01T11:00:00Z"
    maps.lastmods["page-3"] = DAY.format(2)
    assert expected == fleet(attributes).keys()
    assert {"map-0.xml", "map-1.xml", "map-2.xml"} <= maps.asked.keys()


class Whole(SitemapSpider):
    """Reads its sitemap in each crawl."""

    name = "whole"
    site: str
    number: int
    items: list[Any]

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = [f"{self.site}map.xml"]
        async for request in SitemapSpider.start(self):
            yield request

    def parse(self, response: Response) -> Any:
        yield {path_of(response): response.meta.get("tbloom_version")}


URLS = b'<?xml version="1.0"?><urlset><url><loc>SITE/a</loc></url></urlset>'
DATED = URLS.replace(
    b"</url>", b"<lastmod> 2026-11-29 </lastmod></url><url><loc>SITE/b</loc><lastmod/></url>"
)


def test_a_callback_finds_lastmod_in_the_meta(project: Any, tmp_path: Path) -> None:
    """scrapy#7852."""
    [end] = project(Whole, answers={"/map.xml": [DATED]}, **marked("done", tmp_path))
    assert {"a": "2026-11-29", "b": None} == {**end.items[0], **end.items[1]}


MAPS = b"<sitemap><loc>SITE/map.xml</loc>%s</sitemap><sitemap><loc>SITE/b.xml</loc></sitemap>"
INDEX = b'<?xml version="1.0"?><sitemapindex>%s</sitemapindex>' % MAPS


@pytest.mark.parametrize("lastmod", [b"", b"<lastmod>%d</lastmod>"])
def test_an_index_that_names_itself_is_read_once(
    project: Any, tmp_path: Path, lastmod: bytes
) -> None:
    """Also with the time of the request as its lastmod, and if the other one names it, too."""
    maps = [INDEX % (lastmod.replace(b"%d", b"%d" % number)) for number in range(50)]
    answers = {"/map.xml": maps, "/b.xml": maps}
    [end] = project(Whole, answers=answers, **marked("done", tmp_path))
    assert {"map.xml": [1], "b.xml": [1]} == times([end])


def languages(**lastmods: str) -> bytes:
    """A sitemap whose entries name each other, and a page that has no entry."""
    links = "".join(f'<link href="SITE/{page}"/>' for page in [*lastmods, "other"])
    entries = [
        f"<url><loc>SITE/{page}</loc><lastmod>{lastmod}</lastmod>{links}</url>"
        for page, lastmod in lastmods.items()
    ]
    return f'<?xml version="1.0"?><urlset>{"".join(entries)}</urlset>'.encode()


class Languages(Whole):
    """Follows links to other languages, too."""

    sitemap_alternate_links = True


def test_alternate_links_have_the_lastmod_of_their_own_entry(project: Any, tmp_path: Path) -> None:
    """Those without one have that of the first entry that names them."""
    first = {"en": "1", "de": "2", "fr": "3"}
    later = {**first, "de": "4"}
    maps = [languages(**first), languages(**later), languages(**{**later, "en": "5"})]
    ends = project(*[Languages] * 3, answers={"/map.xml": maps}, **marked("done", tmp_path))
    pages = {"de": [1, 1, 0], "en": [1, 0, 1], "fr": [1, 0, 0], "other": [1, 0, 1]}
    assert {**pages, "map.xml": [1, 1, 1]} == times(ends)


def entries(*lines: str) -> bytes:
    """A sitemap of paths, each with its lastmod behind it."""
    urls = "".join(
        "<url><loc>SITE/{}</loc><lastmod>{}</lastmod></url>".format(*line.split()) for line in lines
    )
    return f'<?xml version="1.0"?><urlset>{urls}</urlset>'.encode()


class Hats(Whole):
    """What a crawl wants of a sitemap differs from crawl to crawl: its rules, its filter, its argument, its limit."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self.sitemap_rules = [(f"/{'ab'[self.number % 2]}", "parse")]
        super().__init__(*args, **given)

    def sitemap_filter(self, entries: Any) -> Any:
        for number, entry in enumerate(entries):
            if entry["loc"].endswith(".xml") or number // 2 <= self.number // 2:
                yield entry


ALL = entries(*(f"{page} 1" for page in ("a1", "b1", "a2", "b2", "a3", "b3")))
ONE_MAP = b'<?xml version="1.0"?><sitemapindex><sitemap><loc>SITE/sub.xml</loc><lastmod>2026</lastmod></sitemap></sitemapindex>'


def test_what_a_crawl_did_not_want_of_a_sitemap_the_next_one_finds(
    project: Any, tmp_path: Path
) -> None:
    answers = {"/map.xml": [ONE_MAP], "/sub.xml": [ALL]}
    ends = project(*[Hats] * 6, answers=answers, **marked("done", tmp_path))
    pages = [[path for path in end.fetched if not path.endswith(".xml")] for end in ends]
    assert [["/a1"], ["/b1"], ["/a2"], ["/b2"], ["/a3"], ["/b3"]] == pages


@pytest.mark.parametrize("once", [ALL[: len(ALL) // 2], b"<html>maintenance</html>", b'<?xml version="1.0"?><rss/>', 404])  # fmt: skip
def test_what_a_crawl_could_not_read_of_a_sitemap_the_next_one_finds(
    project: Any, tmp_path: Path, once: Any
) -> None:
    """A sitemap that was cut, that was none, or that was not there."""
    answers = {"/map.xml": [ONE_MAP], "/sub.xml": [once, ALL]}
    ends = project(Whole, Whole, Whole, answers=answers, **marked("done", tmp_path))
    found = [{path for path in end.fetched if not path.endswith(".xml")} for end in ends]
    assert {"/a1", "/b1", "/a2", "/b2", "/a3", "/b3"} == found[0] | found[1]
    assert not found[0] & found[1]
    assert set() == found[2]


class FailsAtB2(Whole):
    """Its filter can't read an entry, in the first crawl."""

    def sitemap_filter(self, entries: Any) -> Any:
        for entry in entries:
            if entry["loc"].endswith("b2") and self.number == 0:
                raise KeyError("price")
            yield entry


def test_a_filter_that_raises_hides_no_entry_before(project: Any, tmp_path: Path) -> None:
    ends = project(FailsAtB2, FailsAtB2, answers={"/map.xml": [ALL]}, **marked("done", tmp_path))
    pages = [sorted({*end.fetched} - {"/map.xml"}) for end in ends]
    assert [["/a1", "/a2", "/b1"], ["/a3", "/b2", "/b3"]] == pages


class Trusting(Whole):
    """As in docs/recipes.md."""

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.site}map.xml", self.parse_index, dont_filter=True)

    def parse_index(self, response: Response) -> Iterator[Any]:
        for entry in Sitemap(response.body):
            meta = {"tbloom_version": entry.get("lastmod")}
            yield scrapy.Request(entry["loc"], self._parse_sitemap, meta=meta)


def test_an_index_may_be_trusted(project: Any, tmp_path: Path) -> None:
    maps = [ONE_MAP, ONE_MAP, ONE_MAP.replace(b"2026", b"2027")]
    ends = project(*[Trusting] * 3, answers={"/map.xml": maps, "/sub.xml": [ALL]}, **marked("done", tmp_path))  # fmt: skip
    assert [1, 0, 1] == times(ends)["sub.xml"]


def test_a_wrong_attribute_is_named() -> None:
    with pytest.raises(ConfigError, match="sitemap_lastmod: expected True, False or 'day', got 'hour'"):  # fmt: skip
        type("Wrong", (SitemapSpider,), {"name": "wrong", "sitemap_lastmod": "hour"})()
