"""tbloom's SitemapSpider: each page has its lastmod as its version."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from scrapy.http import Response

from tbloom.errors import ConfigError
from tbloom.scrapy import SitemapSpider
from tests.helpers.projects import path_of, times

PAGES, CHANGED, DAY = 120, 20, "2026-11-{:02}T10:00:00Z"


def entries(
    lastmods: Mapping[str, str], kind: str = "url", parent: str = "urlset", more: str = ""
) -> bytes:
    """A sitemap of these paths, each with its lastmod, if it has one."""
    lines = [
        f"<{kind}><loc>SITE/{path}</loc>{f'<lastmod>{lastmod}</lastmod>' * bool(lastmod)}{more}</{kind}>"
        for path, lastmod in lastmods.items()
    ]
    xmlns = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return f'<?xml version="1.0"?><{parent} xmlns="{xmlns}">{"".join(lines)}</{parent}>'.encode()


def index(lastmods: Mapping[str, str]) -> bytes:
    return entries(lastmods, "sitemap", "sitemapindex")


def site_of(lastmods: Mapping[str, str], of_maps: str = "") -> dict[str, Any]:
    """A robots.txt that names an index of three sitemaps, with all these pages."""
    maps = {f"map-{n}.xml": entries(dict([*lastmods.items()][n::3])) for n in range(3)}
    answers = {
        "robots.txt": b"Sitemap: SITE/index.xml",
        "index.xml": index(dict.fromkeys(maps, of_maps)),
    }
    return {f"/{path}": [answer] for path, answer in (answers | maps).items()}


class Whole(SitemapSpider):
    """Reads its sitemap in each crawl. Each item has the version of its page."""

    name = "whole"
    site: str
    number: int
    items: list[Any]
    first = "map.xml"

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = [f"{self.site}{self.first}"]
        async for request in SitemapSpider.start(self):
            yield request

    def parse(self, response: Response) -> Any:
        yield {path_of(response): response.meta.get("tbloom_version")}


class Shop(Whole):
    first = "robots.txt"


class Dies(Shop):
    """Its crawler gets a SIGKILL at its first page."""

    def parse(self, response: Response) -> Any:  # noqa: ARG002 - as Scrapy's
        os.kill(os.getpid(), signal.SIGKILL)


class ByDay(Shop):
    sitemap_lastmod = "day"


class WithoutLastmod(Shop):
    sitemap_lastmod = False


def fetched(ends: Any) -> list[str]:
    """The pages that crawls have fetched, in any order."""
    return sorted(path[1:] for end in ends for path in end.fetched if path.startswith("/page-"))


def test_of_a_sitemap_exactly_the_changed_pages_are_fetched_again(project: Any) -> None:
    """crawler#616, indieweb-search#71: by one crawler, by two, and by two after kill -9 of another one."""
    lastmods = {f"page-{number}": DAY.format(1) for number in range(PAGES)}
    assert sorted(lastmods) == fetched(project((Shop, Shop), Shop, answers=site_of(lastmods)))
    for day, crawlers in ((2, Shop), (3, (Shop, Shop)), (4, (Shop, Shop))):
        changed = [f"page-{number}" for number in range(day, PAGES, PAGES // CHANGED)]
        lastmods |= dict.fromkeys(changed, DAY.format(day))
        if day == 4:
            assert project(Dies, answers=site_of(lastmods), TBLOOM_SESSION_TTL=1) is None
        assert sorted(changed) == fetched(project(crawlers, Shop, answers=site_of(lastmods)))


@pytest.mark.parametrize(
    ("spider", "expected"),
    [(Shop, ["page-0", "page-1", "page-3"]), (ByDay, ["page-3"]), (WithoutLastmod, [])],
)
def test_a_lastmod_may_count_by_day_or_not_at_all(
    project: Any, spider: Any, expected: list[str]
) -> None:
    """Whatever the index says, each crawl reads all sitemaps."""
    lastmods = {f"page-{number}": DAY.format(1) for number in range(6)}
    project(spider, answers=site_of(lastmods, DAY.format(1)))
    lastmods |= {
        "page-0": "2026-11-01T11:00:00Z",
        "page-1": "2026-11-01T11:00:00Z",
        "page-3": DAY.format(2),
    }
    ends = project(spider, answers=site_of(lastmods, DAY.format(1)))
    assert expected == fetched(ends)
    assert {"/map-0.xml", "/map-1.xml", "/map-2.xml"} <= {*ends[0].fetched}


DATED = entries({"a": " 2026-11-29 ", "b": ""})


def test_a_callback_finds_lastmod_in_the_meta(project: Any) -> None:
    """scrapy#7852."""
    [end] = project(Whole, answers={"/map.xml": [DATED]})
    assert {"a": "2026-11-29", "b": None} == {**end.items[0], **end.items[1]}


@pytest.mark.parametrize("lastmod", ["", "{}"])
def test_an_index_that_names_itself_is_read_once(project: Any, lastmod: str) -> None:
    """Also with the time of the request as its lastmod, and if the other one names it, too."""
    maps = [index({"map.xml": lastmod.format(number), "b.xml": ""}) for number in range(50)]
    [end] = project(Whole, answers={"/map.xml": maps, "/b.xml": maps})
    assert {"map.xml": [1], "b.xml": [1]} == times([end])


def languages(**lastmods: str) -> bytes:
    """A sitemap whose entries name each other, and a page that has no entry."""
    links = "".join(f'<link href="SITE/{page}"/>' for page in [*lastmods, "other"])
    return entries(lastmods, more=links)


class Languages(Whole):
    """Follows links to other languages, too."""

    sitemap_alternate_links = True


def test_alternate_links_have_the_lastmod_of_their_own_entry(project: Any) -> None:
    """Those without one have that of the first entry that names them."""
    first = {"en": "1", "de": "2", "fr": "3"}
    later = {**first, "de": "4"}
    maps = [languages(**first), languages(**later), languages(**{**later, "en": "5"})]
    ends = project(*[Languages] * 3, answers={"/map.xml": maps})
    pages = {"de": [1, 1, 0], "en": [1, 0, 1], "fr": [1, 0, 0], "other": [1, 0, 1]}
    assert {**pages, "map.xml": [1, 1, 1]} == times(ends)


class Hats(Whole):
    """What a crawl wants of a sitemap differs from crawl to crawl: its rules, its filter, its argument, its limit."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self.sitemap_rules = [(f"/{'ab'[self.number % 2]}", "parse")]
        super().__init__(*args, **given)

    def sitemap_filter(self, entries: Any) -> Any:
        for number, entry in enumerate(entries):
            if entry["loc"].endswith(".xml") or number // 2 <= self.number // 2:
                yield entry


ALL = entries(dict.fromkeys(("a1", "b1", "a2", "b2", "a3", "b3"), "1"))
ONE_MAP = index({"sub.xml": "2026"})


def test_what_a_crawl_skipped_of_a_sitemap_the_next_finds(project: Any) -> None:
    answers = {"/map.xml": [ONE_MAP], "/sub.xml": [ALL]}
    ends = project(*[Hats] * 6, answers=answers)
    pages = [[path for path in end.fetched if not path.endswith(".xml")] for end in ends]
    assert [["/a1"], ["/b1"], ["/a2"], ["/b2"], ["/a3"], ["/b3"]] == pages


@pytest.mark.parametrize("once", [ALL[: len(ALL) // 2], b"<html>maintenance</html>", b'<?xml version="1.0"?><rss/>', 404])  # fmt: skip
def test_a_sitemap_that_could_not_be_read_is_read_again(project: Any, once: Any) -> None:
    """A sitemap that was cut, that was none, or that was not there."""
    answers = {"/map.xml": [ONE_MAP], "/sub.xml": [once, ALL]}
    ends = project(Whole, Whole, Whole, answers=answers)
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


def test_a_filter_that_raises_hides_no_entry_before(project: Any) -> None:
    ends = project(FailsAtB2, FailsAtB2, answers={"/map.xml": [ALL]})
    pages = [sorted({*end.fetched} - {"/map.xml"}) for end in ends]
    assert [["/a1", "/a2", "/b1"], ["/a3", "/b2", "/b3"]] == pages


def test_a_wrong_attribute_is_named() -> None:
    with pytest.raises(ConfigError, match="sitemap_lastmod: expected True, False or 'day', got 'hour'"):  # fmt: skip
        type("Wrong", (SitemapSpider,), {"name": "wrong", "sitemap_lastmod": "hour"})()
