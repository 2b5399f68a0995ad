"""A crawler that was frozen for longer than its session, as by SIGSTOP or with its virtual machine; and a Redis that comes back empty."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler

from tbloom import TimeBloom
from tbloom.claims.fleet import Pages, numbers_of
from tbloom.scrapy.crawl import crawl_of
from tests.helpers import crawl as crawls
from tests.helpers.crawl import Part
from tests.helpers.forked import Forked
from tests.helpers.keptpages import waiting
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.projects import Project, site_of
from tests.helpers.schedulers import DONE

PAGES, HELD, AT_ONCE, TTL = 300, 57, 2, 3.0


class Begins(Part):
    """Appends each page to a file before it is fetched."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.begins, signals.request_reached_downloader)

    def begins(self, request: scrapy.Request) -> None:
        number = request.url.rpartition("/")[2]
        with Path(self.crawler.settings["BEGUN"]).open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")


class Fleet:
    """Crawlers of one tree, and which pages each has begun to fetch."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self._folder, self.name = folder, name
        self._settings = {**DONE, "CONCURRENT_REQUESTS": AT_ONCE, "EXTENSIONS": {Begins: 1}}
        self._settings |= {"REDIS_URL": url, "TBLOOM_KEY": name}
        self.crawlers: list[Forked] = []
        self.site: Any = None

    def start(self, **more: Any) -> Forked:
        number = len(self.crawlers)
        own = {"BEGUN": str(self._folder / f"begun-{number}"), **more}
        files = {"fetched_file": str(self._folder / f"fetched-{number}")}
        settings = {**self._settings, **own}
        crawler = crawls.start("hosts", f"{self.site.url}/", settings, size=PAGES, **files)
        self.crawlers.append(crawler)
        return crawler

    def pages(self, kind: str, number: int) -> list[int]:
        file = self._folder / f"{kind}-{number}"
        text = file.read_text() if file.exists() else ""
        return [int(page) for page in text.split() if page != "0"]  # each fetches the start page

    def all_pages(self, kind: str) -> Counter[int]:
        return Counter(page for n in range(len(self.crawlers)) for page in self.pages(kind, n))

    def wait_until_one_is_full(self, url: str) -> None:
        """Return once the first crawler waits for as many pages as it fetches at once, and has others in its queue.

        All other pages are committed by then, so that it learns of nobody to whom it could give some.
        """
        while sum(page >= HELD for page in self.pages("begun", 0)) < AT_ONCE:
            time.sleep(0.01)
        with TimeBloom.open(url, self.name) as seen:
            while sum(each.items for each in seen.info().slices) < len(self.pages("fetched", 0)):
                time.sleep(0.01)


@pytest.fixture
def fleet(url: str, name: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, url, name)
    with site_of(hold=lambda path, _: int(path[1:]) >= HELD and fleet.site.opened.wait()) as site:
        fleet.site = site
        yield fleet


CHECK = pytest.mark.check


@pytest.mark.parametrize(
    ("share", "ends_before"),
    [
        (True, True),
        *(
            pytest.param(*case, marks=CHECK)
            for case in (("hosts", False), (True, False), ("hosts", True))
        ),
    ],
)
def test_a_crawler_that_was_frozen_fetches_nothing_that_others_have(
    fleet: Fleet, client: redis.Redis, url: str, name: str, *, share: Any, ends_before: bool
) -> None:
    """Only what it had begun to fetch may be fetched twice. It goes on with the others, unless these have ended before it wakes."""
    own = {"TBLOOM_SHARE": share, "DOWNLOAD_DELAY": 0.0 if ends_before else 0.1}
    # Only this one's heartbeats must be in time, until it is frozen.
    frozen = fleet.start(TBLOOM_SHARE=share, TBLOOM_SESSION_TTL=TTL)
    fleet.wait_until_one_is_full(url)
    sessions = f"{{{name}}}:sessions"
    [session] = [key for key in client.hkeys(sessions) if len(key) == 16]
    others = [fleet.start(**own) for _ in range(2)]
    with TimeBloom.open(url, name) as seen:
        while waiting(seen, "hosts") < 2:
            time.sleep(0.05)
    frozen.send_signal(signal.SIGSTOP)
    begun = {*fleet.pages("begun", 0)}
    fleet.site.opened.set()
    if ends_before:
        results = [crawl.result() for crawl in others]
    else:
        while client.hexists(sessions, session):  # until others have left its claims
            time.sleep(0.05)
    frozen.send_signal(signal.SIGCONT)
    woken = frozen.result()
    results = [woken, *(results if ends_before else [crawl.result() for crawl in others])]
    assert {"finished"} == {result["finish_reason"] for result in results}
    assert {*range(1, PAGES)} == {*fleet.all_pages("fetched")}
    twice = {page for page, times in fleet.all_pages("begun").items() if times > 1}
    assert twice <= begun
    assert "goes on in place of session" in woken["log"]
    assert not client.exists(sessions)
    with TimeBloom.open(url, name) as seen:
        numbers = numbers_of(seen)
    assert numbers is not None
    assert sum(result["stats"].get("tbloom/done", 0) for result in results) == numbers.done
    assert {"lost"} == numbers.states.keys()  # on a busy machine perhaps twice
    assert Pages() == numbers.pages


def test_a_fleet_whose_redis_comes_back_empty_misses_nothing(fleet: Fleet) -> None:
    """A WARNING of each crawler says so. What they have queued, are fetching, or have just given away, is fetched."""
    with LocalRedis(needed()) as server, redis.Redis.from_url(server.url) as client:
        own = {"REDIS_URL": server.url, "DOWNLOAD_DELAY": 0.05, "TBLOOM_SESSION_TTL": TTL}
        fleet.start(**own)
        fleet.wait_until_one_is_full(server.url)
        for _ in range(2):
            fleet.start(**own)
        with TimeBloom.open(client, fleet.name) as seen:
            while waiting(seen, "hosts") < 2:
                time.sleep(0.05)
        fleet.site.opened.set()
        while not all(fleet.pages("begun", number) for number in (1, 2)):
            time.sleep(0.01)
        client.flushall()
        results = [crawl.result() for crawl in fleet.crawlers]
    assert ["finished"] * 3 == [result["finish_reason"] for result in results]
    assert {*range(1, PAGES)} == {*fleet.all_pages("fetched")}
    assert [1] * 3 == [result["log"].count("has lost the filter") for result in results]
    assert {1} == {result["stats"].get("tbloom/lost", 1) for result in results}
    assert any("tbloom/lost" in result["stats"] for result in results)


async def lose_session(spider: Any, *, is_empty: bool) -> None:
    """Let others bury the spider's session, or Redis lose all that it has of the filter. Return once the crawl is another session."""
    seen: Any = crawl_of(spider.crawler).seen
    before, sessions = seen.session, f"{{{seen.name}}}:sessions"
    with TimeBloom.open(spider.settings["REDIS_URL"], seen.name) as other:
        if is_empty:
            other.client.delete(*other.client.keys(f"{{{seen.name}}}:*"))
        while not is_empty and other.client.hexists(sessions, before):
            other.client.hset(sessions, before, "1")  # alive until 1970
            other.take(0, "another queue")  # buries it
    while seen.session == before:  # noqa: ASYNC110 - a thread notices it
        await asyncio.sleep(0.01)


class LosesItsSession(crawls.Fetching, scrapy.Spider):
    """Its page 0 leads to others, and asks for itself again once the crawler is another session."""

    was_lost = False

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self.site}0")

    async def parse(self, response: Any) -> AsyncIterator[scrapy.Request]:
        self.note(response)
        if self.was_lost:
            return
        self.crawler.engine.pause()
        for number in range(1, 10):
            yield scrapy.Request(f"{self.site}{number}", self.note)
            yield scrapy.Request(f"{self.site}{number}0", partial(self.note))
        seen = crawl_of(self.crawler).seen
        while len(seen._claims.session.claimed) < 19:  # noqa: ASYNC110 - a thread claims them
            await asyncio.sleep(0.01)
        await lose_session(self, is_empty=False)
        self.was_lost = True
        self.crawler.engine.unpause()
        yield response.request.replace(dont_filter=True)


crawls.SPIDERS["loses"] = LosesItsSession


@pytest.mark.parametrize("jobdir", [False, True])
def test_what_was_queued_is_fetched_though_its_session_was_lost(
    crawl: Any, client: redis.Redis, name: str, tmp_path: Path, *, jobdir: bool
) -> None:
    """Also its retries, what can't be serialised, and what is in a JOBDIR. The log of each crawl says once that it was lost."""
    own: dict[str, Any] = {"EXTENSIONS": {Begins: 1}, "BEGUN": str(tmp_path / "begun")}
    own |= {"JOBDIR": str(tmp_path / "job")} if jobdir else {}
    result = crawl("loses", {**DONE, **own, "CONCURRENT_REQUESTS": 1, "TBLOOM_SESSION_TTL": TTL})
    pages = [str(number) for number in range(10)] + [f"{number}0" for number in range(1, 10)]
    assert sorted(["0", *pages]) == sorted(result["fetched"])
    assert ("finished", len(pages)) == (result["finish_reason"], result["stats"]["tbloom/done"])
    assert 1 == result["log"].count("goes on in place of session")
    assert not client.exists(f"{{{name}}}:claims", f"{{{name}}}:sessions")


class FailsThenLoses(Project):
    """When Redis loses all in the first crawl, a page has failed, and one is in work and fails later. The third one links to them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.is_in_work, self.was_lost = asyncio.Event(), asyncio.Event()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        if self.number == 0:
            for page in "ab":
                yield self.request(page)
            await self.is_in_work.wait()
            while not self.crawler.stats.get_value("tbloom/failed"):  # noqa: ASYNC110 - a stat
                await asyncio.sleep(0.01)
            await lose_session(self, is_empty=True)
            self.was_lost.set()
        elif self.number == 2:
            for page in "ab":
                yield self.request(page)

    async def parse(self, response: Any) -> None:  # noqa: ARG002 - Scrapy gives it
        if self.number == 0:
            self.is_in_work.set()
            await self.was_lost.wait()
            raise ZeroDivisionError


def test_failed_pages_that_redis_has_lost_need_a_link(project: Any) -> None:
    """The log says so, also of those that were in work meanwhile."""
    ends = project(*[FailsThenLoses] * 3, answers={"/a": [503, 200]}, TBLOOM_SESSION_TTL=TTL)
    assert ["ab", "", "ab"] == [end.pages for end in ends]
    [line] = ends[0].warnings("pages have failed")
    assert "2 pages have failed, and only a link leads to them again: Redis has lost" in line
