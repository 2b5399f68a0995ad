"""Links on their way into the queue: what becomes of them where the engine is idle or closes, or a component fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
import redis
import scrapy
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Response
from scrapy.utils.request import RequestFingerprinter

from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done import pages
from tests.helpers.projects import LOCAL, Project, by_mark_and_queue, path_of, times
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.schedulers import SCHEDULED

MARKS, DONE = ("scheduled", "done", "done, local"), ("done", "done, local")
LONG = [pytest.param("scheduled, local", marks=pytest.mark.check), LOCAL]
ALL_MARKS = pytest.mark.parametrize("mark", ["scheduled", "done", LOCAL])
EVERY_MARK = pytest.mark.parametrize("mark", ["scheduled", "done", *LONG])
DONE_MARKS = pytest.mark.parametrize("mark", ["done", LOCAL])


# The engine is idle


class AtIdle(Project):
    """Hands in a request whenever it is idle, of which most are seen.

    As Scrapy's documentation has it, the handler raises `DontCloseSpider` while it has more.
    """

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, scrapy.signals.spider_idle)
        return spider

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def idle(self) -> None:
        page = "aab"[len(self.said) :][:1]
        self.said.append(page)
        self.crawler.engine.crawl(self.request(page or "b"))
        if page:
            raise DontCloseSpider


@by_mark_and_queue(["own", *MARKS], long=["own", "JOBDIR", "scrapy-redis", "done, local"])
def test_an_idle_crawl_that_hands_in_seen_requests_ends(
    project: Any, mark: str, queue: str
) -> None:
    """scrapy#225, #2709: a signal for each time that it is idle, and no more."""
    module = "scrapy_redis.dupefilter" if queue == "scrapy-redis" else "scrapy.dupefilters"
    own = {"DUPEFILTER_CLASS": f"{module}.RFPDupeFilter"}
    [end] = project(AtIdle, **(own if mark == "own" else {}))
    assert ("finished", ["/start", "/a", "/b"]) == (end.reason, end.fetched)
    assert len(end.said) < 10


@ALL_MARKS
@pytest.mark.parametrize("concurrent", [1, 16])
def test_start_requests_behind_duplicates_are_fetched(project: Any, concurrent: int) -> None:
    """scrapy#706: an engine that is idle meanwhile does not end the crawl."""
    pages = [*"a" * 50, "b", *"a" * 50, "c"]
    [end] = project(Project, PAGES=pages, CONCURRENT_REQUESTS=concurrent)
    assert ["/a", "/b", "/c"] == sorted(end.fetched)


class StartsForEver(Project):
    """Yields requests without end, and awaits nothing. The first page ends the crawl."""

    async def start(self) -> AsyncIterator[Any]:
        for number in count():
            yield self.request(str(number))

    def parse(self, response: Response) -> Any:
        raise CloseSpider(path_of(response))


@EVERY_MARK
def test_a_crawl_ends_though_start_would_go_on_for_ever(project: Any, url: str, mark: str) -> None:
    """scrapy#5307: also where Redis takes its time, so that requests wait all the while."""
    with Proxy(url, lambda _: Fault.LATE_REPLY, late=0.02) as proxy:
        more = {} if "local" in mark else {"REDIS_URL": proxy.url}
        [end] = project(StartsForEver, **more)
    assert end.reason.isdecimal()  # a page's


class LinksWhileRedisWaits(Project):
    """Yields 6,000 links to nine pages while Redis does not answer."""

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        if path_of(response) != "start":
            return
        client = redis.Redis.from_url(self.settings["REDIS_URL"])
        client.client_pause(600_000, all=False)
        yield self.request("0", dont_filter=True)
        for number in range(6_000):
            yield self.request(str(1 + number % 9))
        client.client_unpause()


class NotesWaiting(Scheduler):
    """A project's scheduler, which notes how many requests wait when one is put in or taken out."""

    def note(self, what: str) -> None:
        self.crawler.spider.said.append((what, len(self) - super().__len__()))

    def enqueue_request(self, request: scrapy.Request) -> bool:
        self.note("in")
        return super().enqueue_request(request)

    def next_request(self) -> scrapy.Request | None:
        self.note("out")
        return super().next_request()


@pytest.mark.parametrize("mark", ["scheduled", "done"])
def test_no_page_is_fetched_while_thousands_of_links_wait(project: Any, own_url: str) -> None:
    """(The server is the test's own, because it stands still.)"""
    [end] = project(LinksWhileRedisWaits, SCHEDULER=NotesWaiting, REDIS_URL=own_url)
    assert (sorted(["/start", *(f"/{page}" for page in range(10))]), "finished") == (
        sorted(end.fetched),
        end.reason,
    )
    assert max(waiting for what, waiting in end.said if what == "in") > 5_000
    assert max(waiting for what, waiting in end.said if what == "out") <= 5_000


# The crawl closes


class ClosesInCallback(Project):
    """The callback of its first page asks for two pages, and ends the crawl at once. The others ask again."""

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def parse(self, response: Response) -> Any:
        if path_of(response) == "start":
            yield self.request("a")
            yield self.request("b")
            if not self.number:
                raise CloseSpider("at once")
        yield {"page": path_of(response)}


@by_mark_and_queue(DONE)
def test_a_request_before_close_spider_is_fetched_later(project: Any) -> None:
    counted = times(project(*[ClosesInCallback] * 3))
    assert {"a": 1, "b": 1} == {page: sum(counted[page]) for page in "ab"}


# A component fails while a link is taken in


class Parent(Project):
    """A page with three links, of which one makes a component fail in the first crawl."""

    pages = ("parent",)

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response)}
        if path_of(response) == "parent":
            for page in ("first", "fails", "last"):
                yield self.request(page)


def fails(request: Any, crawler: Any) -> bool:
    """Whether a component does, in the first crawl: for one page, and for the requests that downloader middlewares return."""
    is_returned = "retry_times" in request.meta or "redirect_times" in request.meta
    return (path_of(request) == "fails" or is_returned) and crawler.spider.number == 0


class FailsToQueue(Scheduler):
    """A project's scheduler."""

    def enqueue_request(self, request: scrapy.Request) -> bool:
        return self.refuse() if fails(request, self.crawler) else super().enqueue_request(request)

    def refuse(self) -> bool:
        raise ValueError("the disk is full")


class Refuses(FailsToQueue):
    def refuse(self) -> bool:
        return False


class FailsToFingerprint(RequestFingerprinter):
    """A project's fingerprinter, which can't read one of the requests."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    def fingerprint(self, request: scrapy.Request) -> bytes:
        if fails(request, self.crawler):
            raise ValueError("not for this one")
        return super().fingerprint(request)


@DONE_MARKS
@pytest.mark.parametrize(
    "component",
    [
        {"SCHEDULER": FailsToQueue},
        {"REQUEST_FINGERPRINTER_CLASS": FailsToFingerprint},
    ],
    ids=["scheduler", "fingerprinter"],
)
def test_a_page_fails_whose_link_could_not_be_taken_in(project: Any, component: Any) -> None:
    """Or the crawl ends with one line: the next one fetches what is missing, in either case."""
    crawls = project(*[Parent] * 3, **component)
    counted = times(crawls)
    assert [1, 1, 0] == counted["parent"]
    assert [0, 1, 0] == counted["fails"]
    assert {"first": 1, "last": 1} == {page: sum(counted[page]) for page in ("first", "last")}


def test_a_link_that_a_scheduled_crawl_loses_is_named(project: Any) -> None:
    """It stays marked."""
    [crawl] = project(Parent, **SCHEDULED, SCHEDULER=FailsToQueue)
    assert {"parent", "first", "last"} == {*times([crawl])}
    [line] = [line for line in crawl.log if line.startswith("ERROR")]
    assert "/fails> could not be scheduled" in line


class Waiting(scrapy.Request):
    """As of scrapy-selenium: its class has an argument and an attribute of its own."""

    def __init__(self, wait_time: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wait_time = wait_time


class Waits(Project):
    """A page whose links have its meta, and wait. Callbacks empty the meta, before or after they have an item."""

    pages = ("parent",)

    def parse(self, response: Response) -> Any:
        wait_time = getattr(response.request, "wait_time", 0)
        if path_of(response) == "b":
            response.meta.clear()
        yield {"page": path_of(response)}
        self.said.append((path_of(response), wait_time))
        if path_of(response) == "parent":
            for page in ("a", "b"):
                url = response.urljoin(page)
                yield Waiting(10, url, meta=response.meta, headers={"Accept": "text/plain"})
        response.meta.clear()
        if path_of(response) == "a" and self.number == 0:
            raise ZeroDivisionError


@DONE_MARKS
def test_a_request_keeps_what_only_its_class_knows(project: Any) -> None:
    """Copied meta has the token of another page, which the request must not keep. A page is done whatever its callback does to its meta."""
    crawls = project(Waits, Waits)
    counted = times(crawls)
    assert {"parent": [1, 0], "b": [1, 0]} == {page: counted[page] for page in ("parent", "b")}
    assert [("a", 10), ("b", 10), ("parent", 0)] == sorted(crawls[0].said)
    assert not any("could not be scheduled" in line for crawl in crawls for line in crawl.log)


@ALL_MARKS
def test_a_start_request_that_cannot_be_queued_ends_the_crawl(project: Any) -> None:
    """And the next one fetches it."""
    failing = {"REQUEST_FINGERPRINTER_CLASS": FailsToFingerprint}
    first, second = project(Project, Project, PAGES=("first", "fails", "last"), **failing)
    assert "shutdown" == first.reason
    assert ["Error while processing requests from start()"] == [
        line.partition(": ")[2] for line in first.log if line.startswith("ERROR")
    ]
    assert "fails" in second.pages


class Retried(Project):
    """Only the first crawl knows a link to the page."""

    def links(self) -> Any:
        if self.number == 0:
            yield self.request("page")


@DONE_MARKS
@pytest.mark.parametrize("answer", [503, "/other"], ids=["retry", "redirect"])
@pytest.mark.parametrize("scheduler", [Refuses, FailsToQueue])
def test_a_page_fails_whose_retry_or_redirect_is_not_queued(
    project: Any, answer: Any, scheduler: Any
) -> None:
    """The next crawl fetches it, without a link."""
    answers = {"/page": [answer, 200, 200]}
    crawls = project(*[Retried] * 3, answers=answers, SCHEDULER=scheduler, RETRY_ENABLED=True)
    assert [1, 1, 0] == times(crawls)["page"]
    assert [1, 0, 0] == [crawl.stats.get("tbloom/failed", 0) for crawl in crawls]


# Links that were seen


class ManyLinks(Project):
    """A start page with the links of LINKS. It counts the notes that are written, and the calls that look for links or claim them."""

    def links(self) -> Iterator[Any]:
        self.said += [0, [], []]
        yield self.request("start", dont_filter=True)

    def parse(self, response: Response) -> Any:
        if path_of(response) != "start":
            yield {"page": path_of(response)}
            return
        self._count()
        for number in self.settings["LINKS"][self.number]:
            yield self.request(f"page-{number}", meta={"nested": {"page": number}})

    def _count(self) -> None:
        seen: Any = crawl_of(self.crawler).seen
        write, look, claim = self._writes, seen.contains_many, seen.claim_many

        def write_note(request: scrapy.Request, *more: Any, **named: Any) -> Any:
            self.said[0] += 1
            return write(request, *more, **named)

        def contains_many(items: Any, *more: Any, **named: Any) -> Any:
            items = [*items]
            self.said[1].append(len(items))
            return look(items, *more, **named)

        def claim_many(items: Any, **named: Any) -> Any:
            items = [*items]
            self.said[2].append(len(items))
            return claim(items, **named)

        pages.write_note = write_note
        seen.contains_many, seen.claim_many = contains_many, claim_many

    _writes = staticmethod(pages.write_note)


@DONE_MARKS
def test_seen_links_cost_a_look_and_new_ones_a_note(project: Any) -> None:
    """They cost no claims; new ones are claimed together."""
    links = [range(300), range(300), range(100, 350)]
    first, seen, some = project(*[ManyLinks] * 3, LINKS=links)
    assert (300, 300) == (first.said[0], len(first.items))
    assert ([0, []], ["/start"]) == ([seen.said[0], seen.said[2]], seen.fetched)
    assert (50, 50) == (some.said[0], sum(some.said[2]))
    assert {f"/page-{number}" for number in range(300, 350)} == {*some.fetched} - {"/start"}


class HearsOfDropped(Project):
    """Notes at each request that is dropped how many were seen, as the stats say then."""

    pages = "abc"

    def links(self) -> Iterator[Any]:
        self.crawler.signals.connect(self._dropped, scrapy.signals.request_dropped)
        yield from super().links()

    def _dropped(self, request: scrapy.Request) -> None:
        self.said.append((path_of(request), self.crawler.stats.get_value("tbloom/seen")))


@pytest.mark.parametrize("mark", ["done", "scheduled", LOCAL])
def test_who_hears_of_a_dropped_request_reads_right_stats(project: Any) -> None:
    """Though the stats count many at once."""
    _, second = project(HearsOfDropped, HearsOfDropped)
    assert [("a", 1), ("b", 2), ("c", 3)] == second.said
