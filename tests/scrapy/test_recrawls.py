"""What a later crawl fetches again, by the keys of a request's meta, the queue and the mark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import scrapy
from scrapy.http import Response
from scrapy_redis.spiders import RedisSpider

from tests.helpers.clock import Clockwork
from tests.helpers.projects import LOCAL, Project, by_mark_and_queue, marked, path_of, times

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
            url = clockwork.server.url
            ends += project(spider, answers=given, REDIS_URL=url, **settings)
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


# List pages


class Lists(Project):
    """As examples/news.py: list pages that lead to the next one, and articles; the keys are named in each request."""

    pages = ("list-1",)
    within: ClassVar[dict[str, Any]] = {"tbloom_within": 1}

    def links(self) -> Iterator[Any]:
        yield self.request("list-1", meta=dict(self.within))

    def parse(self, response: Response) -> Any:
        number = int(path_of(response).removeprefix("list-"))
        yield self.request(f"article-{number}", callback=self.parse_article)
        if number < 4:
            yield self.request(f"list-{number + 1}", meta=dict(self.within))

    def parse_article(self, response: Response) -> Any:
        yield {"page": path_of(response)}


@by_mark_and_queue(MARKS)
def test_list_pages_are_read_each_slice_articles_once_a_window(days: Any) -> None:
    """Also the third list page and those behind it, whose request names the key as that of the page before it did."""
    crawls = days(Lists, 0, 0, 1, 2)
    lists = {f"list-{number}": [1, 0, 1, 1] for number in range(1, 5)}
    articles = {f"article-{number}": [1, 0, 0, 0] for number in range(1, 5)}
    assert {**lists, **articles} == times(crawls)
    assert ["finished"] * 4 == [crawl.reason for crawl in crawls]
    assert [[]] * 4 == [crawl.warnings("tbloom_within", "response") for crawl in crawls]


class CopiesMeta(Project):
    """A list page that gives each article its own meta (scrapy#2988)."""

    key, value = "tbloom_within", 1

    def links(self) -> Iterator[Any]:
        yield self.request("list", meta={self.key: self.value})

    def parse(self, response: Response) -> Any:
        yield self.request("same", meta=response.meta, callback=self.note)
        yield self.request("copy", meta=dict(response.meta), callback=self.note)
        yield self.request("more", meta={**response.meta, "more": 1}, callback=self.note)
        yield response.follow("/followed", meta=response.meta, callback=self.note)
        # As Scrapy's own warning about copied meta suggests.
        some = {key: v for key, v in response.meta.items() if key != "download_latency"}
        yield self.request("some", meta=some, callback=self.note)
        updated = self.request("updated", callback=self.note)  # scrapy#152
        updated.meta.update(response.meta)
        yield updated
        # scrapy#4796: several requests with the same values.
        yield from response.follow_all(["/all-1", "/all-2"], meta=response.meta, callback=self.note)

    def note(self, response: Response) -> Any:
        yield {"page": path_of(response)}


ARTICLES = ("same", "copy", "more", "followed", "some", "updated", "all-1", "all-2")


@by_mark_and_queue(MARKS)
def test_a_tbloom_key_in_a_copied_meta_has_no_effect(days: Any) -> None:
    """scrapy#2988: the list page is read each day, its articles once."""
    crawls = days(CopiesMeta, 0, 1)
    assert {"list": [1, 1], **{page: [1, 0] for page in ARTICLES}} == times(crawls)


class Explicit(Project):
    """A list page whose articles name its key again, beside a copied meta; its errback does so, too."""

    key, values = "tbloom_within", (1, 1)

    @property
    def value(self) -> Any:
        return self.values[self.settings.getint("DAY")]

    def links(self) -> Iterator[Any]:
        for page in "list", "503":
            yield self.request(page, meta={self.key: self.value}, errback=self.parse)

    def parse(self, source: Any) -> Any:
        meta, page = source.request.meta, path_of(source.request)
        self.said.append(meta[self.key] == self.value)  # it stays readable
        yield self.request(f"{page}-named", meta={**meta, self.key: self.value}, callback=self.note)
        yield self.request(f"{page}-copied", meta=meta, callback=self.note)

    def note(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class ExplicitNumber(Explicit):
    key, values = "tbloom_version", (1, 2)


class ExplicitDate(Explicit):
    key, values = "tbloom_version", (date(2026, 11, 29), datetime(2026, 11, 30, tzinfo=UTC))


@by_mark_and_queue(MARKS)
@pytest.mark.parametrize(
    "spider", [Explicit, ExplicitNumber, pytest.param(ExplicitDate, marks=LONG)]
)
def test_a_tbloom_key_named_beside_a_copied_meta_counts(
    clockwork: Clockwork, project: Any, *, spider: Any
) -> None:
    """Though its value is that of the copied meta."""
    settings = {"REDIS_URL": clockwork.server.url, "answers": {"/503": [503]}}
    crawls = project(spider, DAY=0, **settings)
    clockwork.go_on(DAY)
    crawls += project(spider, DAY=1, **settings)
    pages = [f"{page}-{what}" for page in ("list", "503") for what in ("named", "copied")]
    expected = {page: [1, int(page.endswith("named"))] for page in pages}
    assert expected == {page: at for page, at in times(crawls).items() if page in pages}
    assert all(said for crawl in crawls for said in crawl.said)


class ExplicitDone(Project):
    """An article that is done whatever its callback raises."""

    pages = ("list",)

    def parse(self, response: Response) -> Any:
        for page, more in ("named", {"tbloom_done": True}), ("copied", {}):
            yield self.request(page, meta={**response.meta, **more}, callback=self.note)

    def note(self, response: Response) -> Any:  # noqa: ARG002
        raise ValueError


def test_tbloom_done_that_is_named_beside_a_copied_meta_counts(project: Any) -> None:
    crawls = project(ExplicitDone, ExplicitDone)
    assert {"list": [1, 0], "named": [1, 0], "copied": [1, 1]} == times(crawls)


class CopiesDone(CopiesMeta):
    """The list page says that it is done; the articles fail."""

    def links(self) -> Iterator[Any]:
        yield self.request("list")

    def parse(self, response: Response) -> Any:
        response.meta["tbloom_done"] = True
        yield from super().parse(response)

    def note(self, response: Response) -> Any:  # noqa: ARG002
        raise ValueError


@QUEUES
def test_tbloom_done_does_not_hold_for_a_pages_links(project: Any) -> None:
    """scrapy#2988"""
    crawls = project(CopiesDone, CopiesDone)
    assert {"list": [1, 0], **{page: [1, 1] for page in ARTICLES}} == times(crawls)


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
    """Two crawlers, one after the other while the first one goes on. The list page fails for the first one."""

    #: What has happened, in the process of both.
    failed: ClassVar[Any] = None
    over: ClassVar[Any] = None
    meta: ClassVar[dict[str, Any]] = {"tbloom_within": 1}

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        if Polls.failed is None:
            Polls.failed, Polls.over = asyncio.Event(), asyncio.Event()
        return super().from_crawler(crawler, *args, **kwargs)

    async def start(self) -> AsyncIterator[Any]:
        if self.number == 0:
            yield self.ask()
            await Polls.over.wait()
        else:
            await Polls.failed.wait()
            while not self.items:
                yield self.ask()
                await asyncio.sleep(0.1)
            Polls.over.set()

    def ask(self) -> Any:
        return self.request("list", meta=dict(self.meta), errback=self.note_failure)

    def note_failure(self, failure: Any) -> None:  # noqa: ARG002
        Polls.failed.set()


def test_one_failed_poll_of_a_list_page_stops_no_others(project: Any, tmp_path: Path) -> None:
    """The other crawler polls it while the first one lives."""
    settings = marked("done", tmp_path)
    ends = project((Polls, Polls), answers={"/list": [503, 200]}, **settings)
    assert 2 == sum(len(end.fetched) for end in ends)
    assert [{"page": "list"}] == [item for end in ends for item in end.items]


class PollsAlone(Project):
    """A crawler that does not end: asks for the list page again and again, until it is fetched or has failed four times."""

    failures = 0

    async def start(self) -> AsyncIterator[Any]:
        while self.failures < 4 and not self.items:
            # While the page is in work, the request is dropped.
            yield self.request("list", meta={"tbloom_within": 1}, errback=self.failed)
            await asyncio.sleep(0.1)

    def failed(self, failure: Any) -> None:  # noqa: ARG002
        self.failures += 1


@QUEUES
@pytest.mark.parametrize(("answers", "asked"), [([503], 4), ([503, 503, 200], 3), ([200], 1)])
def test_a_failed_list_page_is_polled_again_by_its_crawl(
    project: Any, answers: list[int], asked: int
) -> None:
    """Without a pause."""
    [end] = project(PollsAlone, answers={"/list": answers})
    assert ["/list"] * asked == end.fetched


# A second run


class Tutorial(Project):
    """The spider of Scrapy's tutorial, whose start requests are filtered."""

    def links(self) -> Iterator[Any]:
        yield from (self.request(f"page-{number}") for number in (1, 2))


class SomeNew(Tutorial):
    """One of its start requests is new in each crawl."""

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield self.request(f"new-{self.number}")


class NeverFiltered(Tutorial):
    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)


@ALL_MARKS
def test_a_second_run_whose_start_was_all_seen_says_so(project: Any) -> None:
    """Once, and names the remedy (scrapy#4479)."""
    first, second = project(Tutorial, Tutorial)
    assert first.fetched
    assert [] == second.fetched
    counts = [len(end.warnings("dont_filter", "tbloom_within")) for end in (first, second)]
    assert [0, 1] == counts


@ALL_MARKS
@pytest.mark.parametrize("spider", [SomeNew, NeverFiltered])
def test_a_second_run_that_fetches_something_logs_no_hint(project: Any, spider: Any) -> None:
    first, second = project(spider, spider)
    assert second.fetched
    assert [] == first.warnings("dont_filter") == second.warnings("dont_filter")


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
