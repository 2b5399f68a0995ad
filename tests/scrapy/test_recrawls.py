"""What a later crawl fetches again, by the keys of a request's meta, the queue and the mark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import pytest
import scrapy
from scrapy.http import Response
from scrapy_redis.spiders import RedisSpider

from tests.helpers.clock import Clockwork
from tests.helpers.projects import LOCAL, Project, by_mark_and_queue, path_of, times

DAY = 24 * 3600
LONG = pytest.mark.check
MARKS = ("scheduled", "done")
QUEUES = pytest.mark.parametrize("queue", ["memory", pytest.param("JOBDIR", marks=LONG)])
ALL_MARKS = pytest.mark.parametrize("mark", ["scheduled", "done", LOCAL])


@pytest.fixture
def days(clockwork: Clockwork, project: Any) -> Any:
    """Crawls on these days, on a server whose clock is set."""

    def days(spider: Any, *days: int, answers: Any = None, **settings: Any) -> list[Any]:
        ends, now = [], days[0]
        answered = answers or [{}] * len(days)
        for day, given in zip(days, answered, strict=True):
            clockwork.go_on((day - now) * DAY)
            now = day
            own = {"REDIS_URL": clockwork.server.url, "DAY": day}
            ends += project(spider, answers=given, **own, **settings)
        return ends

    return days


# Each key of a request's meta, with each queue and mark


class Keys(Project):
    """A good page and one that fails for each of some requests, which are the same in each crawl."""

    requests: ClassVar[dict[str, dict[str, Any]]] = {
        "plain": {},
        "within": {"meta": {"tbloom_within": 1}},
        "within-2": {"meta": {"tbloom_within": 2}},
        "keep": {"meta": {"tbloom_keep": 1}},
        "keep-2": {"meta": {"tbloom_keep": 2}},
        "unfiltered": {"dont_filter": True},
        "unfiltered-within": {"dont_filter": True, "meta": {"tbloom_within": 1}},
        "done-True": {},
        "done-False": {},
    }
    ends = ("good", "503", "raises")

    def links(self) -> Iterator[Any]:
        for name, request in self.requests.items():
            for end in self.ends:
                more = {key: dict(v) if key == "meta" else v for key, v in request.items()}
                yield self.request(f"{name}-{end}", errback=self.failed, **more)

    def parse(self, response: Response) -> Any:
        self.say(response.request)
        yield {"page": path_of(response)}
        if path_of(response).endswith("raises") and self.settings.getbool("FIRST"):
            raise ValueError

    def failed(self, failure: Any) -> None:
        self.say(failure.request)

    def say(self, request: Any) -> None:
        if path_of(request).startswith("done-"):
            request.meta["tbloom_done"] = path_of(request).split("-")[1] == "True"


#: How often it is asked for on the first day, the same day, the next one, and the one after that, if all goes well; and if it has
#: failed in the first crawl with "done".
EXPECTED = {
    "plain": ([1, 0, 0, 0], [1, 1, 0, 0]),
    "within": ([1, 0, 1, 1], [1, 1, 1, 1]),
    "within-2": ([1, 0, 0, 1], [1, 1, 0, 1]),
    "keep": ([1, 0, 1, 1], [1, 1, 1, 1]),
    "keep-2": ([1, 0, 0, 1], [1, 1, 0, 1]),
    "unfiltered": ([1, 1, 1, 1], [1, 1, 1, 1]),
    "unfiltered-within": ([1, 1, 1, 1], [1, 1, 1, 1]),
    "done-True": ([1, 0, 0, 0], [1, 0, 0, 0]),
}
#: A page of which the callback always says that it is not done: each crawl fetches it. (The third one drops the claim.)
NEVER_DONE = [1, 1, 1, 1]


@by_mark_and_queue(MARKS, long=["JOBDIR"])
def test_the_meta_keys_work_with_each_queue_and_mark(days: Any, mark: str) -> None:
    """However the page ends, and on whatever day it is linked again."""
    failing = {f"/{name}-503": [503] for name in Keys.requests}
    crawls = [
        *days(Keys, 0, answers=[failing], FIRST=True),
        *days(Keys, 0, 1, 2),
    ]
    expected = {}
    for name in Keys.requests:
        good, failed = EXPECTED.get(name, (NEVER_DONE, NEVER_DONE))
        if mark == "scheduled":
            failed = good = good if name != "done-False" else EXPECTED["plain"][0]
        expected |= {f"{name}-good": good, f"{name}-503": failed, f"{name}-raises": failed}
    assert expected == times(crawls)
    assert ["finished"] * 4 == [crawl.reason for crawl in crawls]


class Forbidden(Project):
    """``robots.txt`` forbids its pages on the first day."""

    metas: ClassVar[Any] = [{}, {"tbloom_keep": 3}, {"tbloom_version": "1"}]

    def links(self) -> Iterator[Any]:
        for number, meta in enumerate(self.metas):
            yield self.request(f"{number}", meta=dict(meta))


@pytest.mark.parametrize("mark", ["done"])
def test_a_forbidden_page_counts_as_seen_in_the_current_slice_only(days: Any) -> None:
    rules = {"/robots.txt": [b"User-agent: *\nDisallow: /\n"]}
    obeys = {"ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS": 1}  # else some don't wait for it
    ends = days(Forbidden, 0, 0, 1, 2, answers=[rules, {}, {}, {}], **obeys)
    assert {f"{page}": [0, 0, 1, 0] for page in range(3)} == {
        page: seen for page, seen in times(ends).items() if page != "robots.txt"
    }


# Copied meta


class CopiesMeta(Project):
    """A list page, and one that fails, with a key in their meta. The callback, or the errback, gives its links the same meta; in one of
    them, it names the key again."""

    def links(self) -> Iterator[Any]:
        for page in "list", "503":
            yield self.request(page, meta=self.named(), errback=self.parse)

    def named(self) -> dict[str, Any]:
        key, *values = self.settings["NAMED"]
        return {key: values[self.settings.getint("DAY")]}

    def parse(self, source: Any) -> Any:
        meta, page = source.request.meta, path_of(source.request)
        self.said.append(self.named().items() <= meta.items())  # it stays readable
        yield self.request(f"{page}-named", meta={**meta, **self.named()}, callback=self.note)
        for link in "copied", "again":  # scrapy#4796: several requests with the same values.
            yield self.request(f"{page}-{link}", meta=meta, callback=self.note)
        updated = self.request(f"{page}-updated", callback=self.note)  # scrapy#152
        updated.meta.update(meta)
        yield updated

    def note(self, response: Response) -> Any:
        yield {"page": path_of(response)}


DATES = date(2026, 11, 29), datetime(2026, 11, 30, tzinfo=UTC)


@by_mark_and_queue(MARKS)
@pytest.mark.parametrize(
    "named",
    [
        ("tbloom_within", 1, 1),
        ("tbloom_version", 1, 2),
        pytest.param(("tbloom_version", *DATES), marks=LONG),
    ],
)
def test_a_tbloom_key_in_a_copied_meta_has_no_effect(days: Any, named: Any) -> None:
    """scrapy#2988: the list page is read each day, its articles once. A key that is named beside it counts, though its value is the same."""
    crawls = days(CopiesMeta, 0, 1, answers=[{"/503": [503]}] * 2, NAMED=named)
    pages = [(page, link) for page in ("list", "503") for link in ("copied", "again", "updated")]
    copied = {f"{page}-{link}": [1, 0] for page, link in pages}
    named_again = {page: [1, 1] for page in ("list", "503", "list-named", "503-named")}
    assert copied | named_again == times(crawls)
    assert all(said for crawl in crawls for said in crawl.said)


class CopiesDone(Project):
    """Two list pages whose articles fail: one says in its callback that it is done, the other one that an article is."""

    pages = ("done", "other")

    def parse(self, response: Response) -> Any:
        page, named = path_of(response), {"tbloom_done": True}
        if page == "done":
            response.meta.update(named)
        else:
            meta = {**response.meta, **named}
            yield self.request(f"{page}-named", meta=meta, callback=self.note)
        yield self.request(f"{page}-copied", meta=response.meta, callback=self.note)

    def note(self, response: Response) -> Any:  # noqa: ARG002
        raise ValueError


@QUEUES
def test_tbloom_done_does_not_hold_for_a_pages_links(project: Any) -> None:
    """scrapy#2988. What a link's own meta names, counts."""
    crawls = project(CopiesDone, CopiesDone)
    lists = {"done": [1, 0], "other": [1, 0], "other-named": [1, 0]}
    assert {**lists, "done-copied": [1, 1], "other-copied": [1, 1]} == times(crawls)


class RetriesLists(Project):
    """List pages that are redirected, retried by Scrapy, by the callback and by the errback."""

    pages = ("redirected", "retried", "by-callback", "by-errback")

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path, meta={"tbloom_within": 1}, errback=self.again, **more)

    def parse(self, response: Response) -> Any:
        if path_of(response) == "by-callback" and not response.meta.get("again"):
            yield response.request.replace(
                dont_filter=True, meta={**response.request.meta, "again": True}
            )
        else:
            yield {"page": path_of(response)}

    def again(self, failure: Any) -> Any:
        if path_of(failure.request) == "by-errback" and not failure.request.meta.get("again"):
            failure.request.meta["again"] = True
            return failure.request.replace(dont_filter=True)
        return None


@by_mark_and_queue(MARKS)
def test_a_retried_or_redirected_page_keeps_its_meta_keys(days: Any) -> None:
    answers = {"/redirected": ["/target"], "/retried": [503, 200], "/by-errback": [404, 200]}
    crawls = days(RetriesLists, 0, 0, 1, answers=[answers] * 3, RETRY_ENABLED=True, RETRY_TIMES=1)
    once = {page: [1, 0, 1] for page in ("redirected", "target")}
    twice = {page: [2, 0, 2] for page in ("retried", "by-callback", "by-errback")}
    assert once | twice == times(crawls)
    assert [[]] * 3 == [crawl.warnings("tbloom_within") for crawl in crawls]


# Fleets


class Polls(Project):
    """Asks for the list page again and again, until it is fetched or has failed four times. ``WAITS``: once it has failed for another
    crawler."""

    failures = 0
    has_failed, is_over = asyncio.Event(), asyncio.Event()

    async def start(self) -> AsyncIterator[Any]:
        if self.settings.getbool("WAITS"):
            await self.has_failed.wait()
        while self.failures < 4 and not self.items:
            yield self.ask()  # while the page is in work, the request is dropped
            await asyncio.sleep(0.1)
        self.is_over.set()

    def ask(self) -> Any:
        return self.request("list", meta={"tbloom_within": 1}, errback=self.failed)

    def failed(self, failure: Any) -> None:  # noqa: ARG002
        self.failures += 1
        self.has_failed.set()


class PollsOnce(Polls):
    """Goes on until the other crawler has the page."""

    async def start(self) -> AsyncIterator[Any]:
        yield self.ask()
        await self.is_over.wait()


def test_one_failed_poll_of_a_list_page_stops_no_others(project: Any) -> None:
    """The other crawler polls it while the first one lives."""
    ends = project((PollsOnce, Polls), answers={"/list": [503, 200]}, WAITS=True)
    assert [["/list"], ["/list"]] == [end.fetched for end in ends]
    assert [[], [{"page": "list"}]] == [end.items for end in ends]


@QUEUES
@pytest.mark.parametrize(("answers", "asked"), [([503], 4), ([503, 503, 200], 3)])
def test_a_failed_list_page_is_polled_again_by_its_crawl(
    project: Any, answers: list[int], asked: int
) -> None:
    """Without a pause."""
    [end] = project(Polls, answers={"/list": answers})
    assert ["/list"] * asked == end.fetched


# A second run


class Tutorial(Project):
    """The spider of Scrapy's tutorial, whose start requests are filtered."""

    pages = "12"


class SomeNew(Tutorial):
    """One of its start requests is new in each crawl."""

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield self.request(f"new-{self.number}")


class NeverFiltered(Project):
    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)


@ALL_MARKS
@pytest.mark.parametrize(
    ("spider", "is_idle"), [(Tutorial, True), (SomeNew, False), (NeverFiltered, False)]
)
def test_a_second_run_whose_start_was_all_seen_says_so(
    project: Any, *, spider: Any, is_idle: bool
) -> None:
    """Once, and names the remedy (scrapy#4479); not one that fetches something."""
    first, second = project(spider, spider)
    assert (True, is_idle) == (bool(first.fetched), not second.fetched)
    assert [] == first.warnings("dont_filter")
    assert ["tbloom_within" in line for line in second.warnings("dont_filter")] == [True] * is_idle


# Seeds


class Seeds(RedisSpider):
    """RedisSpider's requests are never filtered."""

    name = "seeds"
    site: str
    number: int
    redis_key = "seeds"

    async def start(self) -> AsyncIterator[Any]:
        lines = f"{self.site}a", '{"URL": "none"}', f"{self.site}b"
        self.server.rpush(self.redis_key, *lines)
        async for request in super().start():
            yield request

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class FilteredSeeds(Seeds):
    """The recipe."""

    def make_request_from_data(self, data: bytes) -> Any:
        request = super().make_request_from_data(data)
        return request and request.replace(dont_filter=False)


@by_mark_and_queue(MARKS, ["memory", "scrapy-redis"], long=["scheduled"])
@pytest.mark.parametrize(("spider", "expected"), [(Seeds, [1, 1]), (FilteredSeeds, [1, 0])])
def test_seeds_of_a_redis_spider_are_filtered_by_the_recipe(
    project: Any, name: str, *, spider: Any, expected: Any
) -> None:
    settings = {"REDIS_START_URLS_KEY": name, "MAX_IDLE_TIME_BEFORE_CLOSE": 1}
    assert {"a": expected, "b": expected} == times(project(spider, spider, **settings))
