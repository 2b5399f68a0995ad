"""A page in a new version, beside links in older ones, and with an HTTP cache that has an older one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from email.utils import formatdate
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import scrapy
from scrapy.http import Response

from tbloom.scrapy import SitemapSpider
from tests.helpers.harm import new_seed
from tests.helpers.projects import LOCAL, Project, Versions, path_of
from tests.helpers.schedulers import SCRAPY
from tests.scrapy.test_sitemap import entries

DONE = pytest.mark.parametrize("mark", ["done", LOCAL])


class Older(Versions):
    """VERSIONS has for each crawl the versions in which "a" is linked: one for each list page, in turn, while "a" waits."""

    custom_settings = {  # noqa: RUF012 - as Scrapy has it
        "CONCURRENT_REQUESTS": 1,
        "RETRY_PRIORITY_ADJUST": -5,
    }

    def links(self) -> Iterator[Any]:
        lists = self.settings["VERSIONS"][self.number]
        yield self.request(
            f"new-{self.number}"
        )  # where most links are new, they are claimed at once
        for number, versions in enumerate(lists):
            more = {"callback": self.parse_list, "cb_kwargs": {"versions": versions}}
            yield self.request(f"list-{number}", dont_filter=True, priority=-number, **more)
        for _ in range(8 * (len(lists) > 1)):  # meanwhile, the last links get their answers
            yield self.request("between", dont_filter=True, priority=-5)

    def parse_list(self, _: Response, versions: str) -> Iterator[Any]:
        for version in versions:
            meta = {"tbloom_version": version, **self.settings.get("META", {})}
            yield self.request("a", meta=meta, priority=-10)


RETRY = {"RETRY_ENABLED": True, "answers": {"/a": [200, 503, 200, 503, 200]}}


@pytest.mark.parametrize("mark", ["scheduled", "done", LOCAL])
@pytest.mark.parametrize(
    ("versions", "more"),
    [
        (["A", "BA", "CBA", "BAC"], {}),
        ([["A"], ["B", "A"], ["C", "B", "A"], ["A", "B", "C"]], {}),
        ([["A"], ["B", "A"], ["C", "B", "A"], ["A", "B", "C"]], {"META": {"tbloom_within": 1}}),
    ],
    ids=["in a batch", "in turn", "of the newest slice"],
)
def test_an_older_link_takes_no_new_versions_place(
    project: Any, versions: Any, more: dict[str, Any]
) -> None:
    lists = [[each] if isinstance(each, str) else each for each in versions]
    ends = project(*[Older] * 4, VERSIONS=lists, **more)
    assert [["A"], ["B"], ["C"], []] == [
        [i["version"] for i in end.items if i["page"] == "a"] for end in ends
    ]


class Twice(Project):
    """A list names each page twice, in one version."""

    custom_settings = {"CONCURRENT_REQUESTS": 2}  # noqa: RUF012 - as Scrapy has it

    def links(self) -> Iterator[Any]:
        yield self.request("list", callback=self.parse_list)

    def parse_list(self, _: Response) -> Iterator[Any]:
        for page in [*range(60)] * 2:
            yield self.request(f"{page}", meta={"tbloom_version": "1"})


def test_crawlers_share_pages_that_are_linked_twice_in_a_version(project: Any) -> None:
    ends = project((Twice, Twice), answers={"": [(0.03, 200)]})
    assert all(len(end.items) > 9 for end in ends)
    assert {1} == {*Counter(item["page"] for end in ends for item in end.items).values()}


# Random rounds

PAGES, DAYS = 30, 4
FORMS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dt%H:%M:%S.000z", "%Y-%m-%dT%H:%M+0000", "%Y-%m-%d %H:%M:%S")


def spelled(dice: random.Random, day: int) -> str:
    """The version of a day: a moment, in one of its spellings."""
    moment = datetime(2026, 11, 1 + day, tzinfo=UTC)
    if dice.random() < 0.5:
        return moment.strftime(dice.choice(FORMS))
    zone = timezone(timedelta(minutes=30 * dice.randrange(-20, 20)))
    return moment.astimezone(zone).isoformat(timespec=dice.choice(["seconds", "milliseconds"]))


class Disagree(SitemapSpider):
    """Reads two sitemaps and a list, which name each page in different versions. LISTED has the list's, by the crawl's number."""

    name = "project"
    site: str
    number: int
    items: list[Any]

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = [f"{self.site}{self.number}-{n}.xml" for n in range(2)]
        async for request in SitemapSpider.start(self):
            yield request
        yield scrapy.Request(f"{self.site}list", self.parse_list, dont_filter=True)

    def parse_list(self, _: Response) -> Iterator[Any]:
        for page, version in self.settings["LISTED"][self.number].items():
            yield scrapy.Request(f"{self.site}{page}", meta={"tbloom_version": version})

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response), "version": response.meta["tbloom_version"]}


class Round:
    """What the crawls of some days find, two on a day, and what their items should be."""

    def __init__(self, dice: random.Random) -> None:
        self.days = dict[str, int]()  # of versions
        self.linked = [self._links(dice, crawl // 2) for crawl in range(2 * DAYS)]
        self.answers: dict[str, list[Any]] = {
            f"/{crawl}-{n}.xml": [entries(links[n])]
            for crawl, links in enumerate(self.linked)
            for n in range(2)
        }
        for page in range(PAGES):
            self.answers[f"/{page}"] = dice.choices([200, 503], [9, 1], k=20)

    def _links(self, dice: random.Random, today: int) -> list[dict[str, str]]:
        """Each page in a version of the day, or of one before: of the sitemaps, and of the list."""
        found = list[dict[str, str]]()
        for _ in range(3):
            days = {f"{page}": max(0, today - dice.randrange(3)) for page in range(PAGES)}
            links = {page: spelled(dice, day) for page, day in days.items()}
            self.days |= {links[page]: day for page, day in days.items()}
            found.append(links)
        return found

    def check(self, ends: Any) -> None:
        """Raise AssertionError if a page is done twice in a version, in one without a link, or not in any new one."""
        linked, done = set[Any](), Counter[Any]()
        for crawls, today in zip(pairs(ends), pairs(self.linked), strict=True):
            links = {
                (page, self.days[version])
                for crawl in today
                for links in crawl
                for page, version in links.items()
            }
            items = [
                (item["page"], self.days[item["version"]]) for end in crawls for item in end.items
            ]
            failed = {path[1:] for end in crawls for path in end.fetched} - {
                page for page, _ in items
            }
            new, linked = {page for page, _ in links - linked}, linked | links
            done.update(items)
            assert {*items} <= linked
            assert new <= failed | {page for page, _ in items}
        assert {1} == {*done.values()}


def pairs(each: Any) -> list[Any]:
    return [each[n : n + 2] for n in range(0, len(each), 2)]


@pytest.mark.parametrize("mark", ["done", LOCAL])
@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.check)])
def test_each_version_is_fetched_once_whoever_disagrees(
    project: Any, name: str, mark: str, tmp_path: Path, rounds: int
) -> None:
    """Some answers fail. Crawls of a day run at the same time where they can share the filter."""
    for number in range(rounds):
        dice = random.Random(new_seed())
        plan = Round(dice)
        is_alone = mark.endswith("local") or dice.random() < 0.5
        spiders = [Disagree] * 2 * DAYS if is_alone else [(Disagree, Disagree)] * DAYS
        own = {
            "LISTED": [links[2] for links in plan.linked],
            "CONCURRENT_REQUESTS": dice.choice([1, 1, 8]),
        }
        own |= (
            {"TBLOOM_PATH": str(tmp_path / f"{number}")}
            if mark.endswith("local")
            else {"TBLOOM_KEY": f"{name}:{number}"}
        )
        plan.check(project(*spiders, answers=plan.answers, **own))


# An HTTP cache

RFC = {"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"}
OURS = {"HTTPCACHE_STORAGE": "tbloom.scrapy.PageCacheStorage"}
MAX_AGE = {"Cache_Control": "max-age=3600"}
OLD = {"Last_Modified": formatdate(time.time() - 180 * 24 * 3600, usegmt=True)}


class Cached(Versions):
    """Asks for "a" in the version of the day, as it is without a link too if VERSIONS says so."""

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path, headers=self.settings.get("OWN"), **more)

    def parse(self, response: Response) -> Any:
        yield {"text": response.text}


class CachedMap(SitemapSpider, Project):
    """Reads a sitemap that says for how long it is fresh."""

    async def start(self) -> AsyncIterator[Any]:
        self.sitemap_urls = [f"{self.site}map.xml"]
        async for request in SitemapSpider.start(self):
            yield request

    def parse(self, response: Response) -> Any:
        yield {"text": response.text}


def answer(fresh: dict[str, str], fails_in: Any, site: Any, path: str) -> None:
    """Answers with the crawl's number and the Cache-Control that it has asked with; "from" leads to "a"."""
    said = f"{site.server.number} {site.headers['Cache-Control']}"
    if path == "/map.xml":
        body = entries({"a": said}).replace(b"SITE", site.server.url.encode())
        site.answer(200, body, Content_Type="text/xml", **fresh)
    elif path == "/from":
        site.answer(302, Location="/a", **fresh)
    elif site.server.number in fails_in:
        site.answer(503) if fails_in[site.server.number] else None
    else:
        site.answer(200, said.encode(), **fresh)


@pytest.fixture
def cached(project: Any, tmp_path: Path) -> Any:
    """Crawls with RFC2616Policy, in the versions 1, 2, ..."""

    def cached(
        *spiders: Any, fresh: Any = MAX_AGE, fails_in: Any = MappingProxyType({}), **more: Any
    ) -> Any:
        own = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache"), **RFC}
        own["VERSIONS"] = range(1, len(spiders) + 1)
        return project(*spiders, answers=partial(answer, fresh, dict(fails_in)), **{**own, **more})

    return cached


def texts(ends: Any) -> list[str]:
    return [item["text"] for end in ends for item in end.items]


@pytest.mark.parametrize("fresh", [MAX_AGE, OLD], ids=["max-age", "last-modified"])
@pytest.mark.parametrize(
    ("spider", "more"),
    [
        (Cached, {}),
        (Cached, {"mark": "scheduled"}),
        (Cached, {"ADDONS": {}, **SCRAPY}),
        pytest.param(Cached, OURS, marks=pytest.mark.check),
        (Cached, {"VERSIONS": [[("from", 1)], [("from", 2)]]}),
        (CachedMap, {}),
    ],
    ids=["done", "scheduled", "the class alone", "a page store", "redirect", "sitemap"],
)
def test_a_new_version_does_not_come_from_the_cache(
    cached: Any, fresh: Any, spider: Any, more: dict[str, Any]
) -> None:
    assert ["0 no-cache", "1 no-cache"] == texts(cached(spider, spider, fresh=fresh, **more))


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"OWN": {"Cache-Control": "max-age=9"}}, ["0 max-age=9"] * 2),
        ({"DEFAULT_REQUEST_HEADERS": {"cache-control": "max-age=9"}}, ["0 max-age=9"] * 2),
        ({"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.DummyPolicy"}, ["0 no-cache"] * 2),
        ({"HTTPCACHE_ENABLED": False}, ["0 None", "1 None"]),
        ({"VERSIONS": ["", "2"]}, ["0 None", "1 no-cache"]),
    ],
    ids=["the spider says", "the settings say", "DummyPolicy", "no cache", "no version"],
)
def test_the_cache_is_asked_unless_a_version_is_new(
    cached: Any, more: dict[str, Any], found: list[str]
) -> None:
    """And as the spider says. DummyPolicy, which asks nobody, gives what it has."""
    assert found == texts(cached(Cached, Cached, **more))


def test_an_offline_crawl_has_each_version_from_the_cache(cached: Any) -> None:
    assert ["0 no-cache"] * 2 == texts(
        [*cached(Cached), *cached(Cached, VERSIONS=[2], HTTPCACHE_IGNORE_MISSING=True)]
    )


@DONE
@pytest.mark.parametrize("fails", [503, None])
def test_a_cached_page_of_a_failing_site_is_not_done(cached: Any, fails: Any) -> None:
    """The next crawl takes it, without a link, and asks the site."""
    ends = cached(*[Cached] * 3, VERSIONS=[1, 2, []], fails_in={"1": fails})
    assert ["0 no-cache", "0 no-cache", "2 no-cache"] == texts(ends)
    assert 1 == ends[1].stats["tbloom/failed/stale from the cache"]
