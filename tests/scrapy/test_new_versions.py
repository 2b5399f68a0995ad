"""A page in a new version, beside links in older ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.http import Response

from tbloom.scrapy import SitemapSpider
from tests.helpers.harm import new_seed
from tests.helpers.projects import LOCAL, Versions, path_of
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
