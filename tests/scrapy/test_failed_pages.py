"""Which pages have failed (``TBLOOM_MARK = "done"``): the next crawl fetches them again, and a dead one is given up."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.selector import Selector

from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.page import words_of
from tests.helpers.crawl import Part
from tests.helpers.projects import Project, path_of, times

STATUSES = [302, 400, 401, 403, 404, 410, 418, 429, 451, 500, 503]
WITH_STATUS = {f"/{status}": [status] for status in STATUSES}


def names(pages: Any) -> list[str]:
    """What the crawl has asked for, sorted."""
    return sorted(path.strip("/") for path in pages)


# Pages whose callback never ran


class Statuses(Project):
    pages = tuple(map(str, STATUSES))


class HandlesAll(Statuses):
    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path, meta={"handle_httpstatus_all": True}, **more)


@pytest.mark.parametrize(
    ("spider", "more", "done"),
    [
        (Statuses, {}, {404, 410}),
        (Statuses, {"TBLOOM_DONE_STATUSES": [403, 451]}, {403, 451}),
        (Statuses, {"TBLOOM_DONE_STATUSES": []}, set()),
        # The callback has handled them (as in link checkers).
        (HandlesAll, {}, set(STATUSES)),
    ],
    ids=["by default", "as set", "none", "by the callback"],
)
def test_a_status_without_a_callback_is_a_failure_unless_404_or_410(
    done_project: Any, spider: Any, more: dict[str, Any], done: set[int]
) -> None:
    """scrapy-redis#177; a callback may have handled any status, as in link checkers (scrapy#3843)."""
    more = {**more, "REDIRECT_ENABLED": False}
    first, second = done_project(spider, spider, answers=WITH_STATUS, **more)
    assert [str(status) for status in STATUSES] == names(first.fetched)
    assert [str(status) for status in STATUSES if status not in done] == names(second.fetched)


class FailsAgain(Project):
    """In each crawl: a page is refused, one can't be parsed, and one is a login page. ``fine`` is fetched once."""

    pages = ("503", "callback", "login", "fine")

    def parse(self, response: Response) -> Any:
        page = path_of(response)
        if page == "login":
            response.meta["tbloom_done"] = False
        if page == "callback":
            raise KeyError
        yield {"page": page}


def test_a_failure_from_the_cache_is_named_so(done_project: Any, tmp_path: Path) -> None:
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    ends = done_project(*[FailsAgain] * 2, answers={"/503": [503]}, **cache)
    assert [["503", "callback", "fine", "login"], []] == [names(end.fetched) for end in ends]
    first, second = (
        {stat[14:]: n for stat, n in end.stats.items() if stat.startswith("tbloom/failed/")}
        for end in ends
    )
    assert {"status/503": 1, "callback/KeyError": 1, "tbloom_done": 1} == first
    assert {f"{reason} from the cache": 1 for reason in first} == second
    [warning] = ends[1].warnings("have failed")
    assert "status/503 from the cache: 1" in warning


class Mute(Exception):
    def __str__(self) -> str:
        raise TypeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (None, ""),
        (Mute(), ""),
        (KeyError("a"), "'a'"),
        (ValueError("a\n\tb " + "c" * 9_999), f"a b {'c' * 196}"),
        (ValueError("no redis://:hunter2@h:1/0?password=hunter2, b"), "no redis://***@h:1/0 b"),
        (ValueError("<GET https://a.example/?key=hunter2> (x)"), "<GET https://a.example/ (x)"),
        (ValueError("at postgresql://u:hunter2@h/db"), "at postgresql://***"),
    ],
)
def test_the_words_of_an_error_are_one_line_without_secrets(error: Any, message: str) -> None:
    assert (message, "") == words_of(error)


class Raises(Project):
    """Each of its methods raises an exception."""

    def links(self) -> Iterator[Any]:
        yield self.request("a", callback=self.generates)
        yield self.request("b", callback=self.awaits)
        yield self.request("503", errback=self.errback)

    def generates(self, _response: Response) -> Iterator[Any]:
        yield {}
        raise LookupError("generates")

    async def awaits(self, _response: Response) -> Any:
        await asyncio.sleep(0)
        raise LookupError("awaits")

    def errback(self, _failure: Any) -> None:
        raise LookupError("errback")


def test_any_methods_exception_is_named_with_its_place(done_project: Any) -> None:
    [crawl] = done_project(Raises, answers={"/503": [503]})
    [warning] = crawl.warnings("3 pages have failed", "callback/LookupError: 3")
    found = re.findall(r"\((\w+) at tests/scrapy/test_failed_pages\.py:(\d+)\)", warning)
    lines = Path(__file__).read_text().splitlines()
    raised = sorted((message, lines[int(line) - 1].strip()) for message, line in found)
    names = "awaits", "errback", "generates"
    assert [(name, f'raise LookupError("{name}")') for name in names] == raised


class RetriesByHand(Part):
    """As middlewares that change the proxy do, without ``dont_filter``."""

    def process_request(self, request: scrapy.Request) -> None:
        if path_of(request) == "raises":
            raise ConnectionError("refused")

    def process_response(self, request: scrapy.Request, response: Response) -> Any:
        changed = request.copy() if path_of(request) == "503" else request
        return changed if path_of(request) in ("302", "429", "503") else response

    def process_exception(self, request: scrapy.Request, exception: Exception) -> scrapy.Request:  # noqa: ARG002 - as Scrapy has it
        return request.replace(priority=1)


@pytest.mark.parametrize("order", [1, 999])
def test_a_page_that_is_retried_by_hand_fails_as_what_it_met(done_project: Any, order: int) -> None:
    """scrapy#5301. One that is redirected to itself fails as a redirect, of which nothing is to be said."""
    answers = {"/302": [302], "/429": [429], "/503": [503], "/itself": ["/itself"]}
    pages = {"PAGES": ("302", "429", "503", "raises", "itself"), "EXTENSIONS": {}}
    middlewares = {"DOWNLOADER_MIDDLEWARES": {RetriesByHand: order}}
    [crawl] = done_project(Project, answers=answers, **pages, **middlewares)
    of_status = ("302", "429", "503")
    reasons = *(f"status/{status}" for status in of_status), "download/ConnectionError", "redirect"
    assert [1] * 5 == [crawl.stats.get(f"tbloom/failed/{reason}") for reason in reasons]
    [warning] = crawl.warnings("5 pages have failed")
    assert warning.count("get_retry_request") in (2, 3)  # of the three examples
    assert {f"/{page}": 2 for page in (*of_status, "itself")} == {**Counter(crawl.fetched)}


class Banned(Part):
    """As middlewares that rotate proxies do when all are banned, in the first crawl."""

    def process_request(self, request: scrapy.Request) -> None:
        self._ban("request", request)

    def process_response(self, request: scrapy.Request, response: Response) -> Response:
        self._ban("response", request)
        return response

    def _ban(self, where: str, request: scrapy.Request) -> None:
        if path_of(request) == where and not self.crawler.spider.number:
            raise IgnoreRequest("banned")


class BansCallbacks(Part):
    """A spider middleware."""

    def process_spider_input(self, response: Response) -> None:
        if path_of(response) == "input" and not self.crawler.spider.number:
            raise IgnoreRequest("banned")


class MeetsBans(Project):
    pages = ("input", "other", "request", "response")


def test_the_next_crawl_fetches_what_a_middleware_ignored(done_project: Any) -> None:
    """scrapy-rotating-proxies#48"""
    middlewares = {
        "DOWNLOADER_MIDDLEWARES": {Banned: 543},
        "SPIDER_MIDDLEWARES": {BansCallbacks: 543},
    }
    crawls = done_project(MeetsBans, MeetsBans, MeetsBans, **middlewares)
    assert {
        "input": [1, 1, 0],
        "other": [1, 0, 0],
        "request": [0, 1, 0],
        "response": [1, 1, 0],
    } == times(crawls)


class Refused(Project):
    """By robots.txt, and offsite, also behind a redirect."""

    pages = ("forbidden", "allowed", "moved")
    allowed_domains = ("127.0.0.1",)

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield scrapy.Request(f"{self.site}offsite".replace("127.0.0.1", "localhost"))


def test_pages_that_are_forbidden_or_offsite_are_neither_done_nor_failed(done_project: Any) -> None:
    """The second crawl has nothing to fetch, and no page is left to it: the rules don't count."""
    rules = b"User-agent: *\nDisallow: /forbidden\n"
    answers = {"/robots.txt": [rules], "/moved": ["http://localhost:PORT/"]}
    first, second = done_project(Refused, Refused, answers=answers, ROBOTSTXT_OBEY=True)
    assert ["allowed", "moved", "robots.txt"] == names(first.fetched)
    assert {"robots.txt"} >= {*names(second.fetched)}
    assert [1, 2, None] == [
        first.stats.get(f"tbloom/{of}") for of in ("done", "forbidden", "failed")
    ]


class OnceAllowed(Refused):
    """Its page on another host fails in the first crawl, when that was allowed."""

    allowed_domains = ()
    pages = ()


def test_a_kept_page_that_is_offsite_by_now_is_forbidden(done_project: Any) -> None:
    """The downloader middleware says so: nobody has scheduled it."""
    first, second, last = done_project(
        OnceAllowed, Refused, OnceAllowed, answers={"/offsite": [503]}
    )
    assert ["offsite"] == names(first.fetched)
    assert (1, None) == (second.stats["tbloom/forbidden"], second.stats.get("tbloom/failed"))
    assert [] == names(last.fetched)


# What a callback or an errback says of its page


class SaysDone(Project):
    """Pages whose callback or errback sets ``tbloom_done``: "callback-", "errback-" and what it sets. A callback "raises" then."""

    kinds = ("callback", "errback", "raises")
    pages = tuple(f"{by}-{says}" for by in kinds for says in ("", "True", "False"))

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path, errback=self.failed, **more)

    def parse(self, response: Response) -> Any:
        self.say(response.request)
        if path_of(response).startswith("raises"):
            raise ValueError
        yield {"page": path_of(response)}

    def failed(self, failure: Any) -> Any:
        """A link checker's: each broken link is an item."""
        self.say(failure.request)
        yield {"broken": path_of(failure.request)}

    def say(self, request: Any) -> None:
        if says := path_of(request).partition("-")[2]:
            request.meta["tbloom_done"] = says == "True"


@pytest.mark.parametrize("status", [503, 403, None], ids=["503", "403", "connection cut"])
def test_an_errback_rescues_no_page_but_tbloom_done_does(
    done_project: Any, status: int | None
) -> None:
    """scrapy-redis#302: a callback asks for another try of its page. It overrules an exception, too."""
    answers = {f"/errback-{says}": [status] for says in ("", "True", "False")}
    crawls = done_project(SaysDone, SaysDone, answers=answers)
    assert {
        "callback-": [1, 0],
        "callback-False": [1, 1],
        "callback-True": [1, 0],
        "errback-": [1, 1],
        "errback-False": [1, 1],
        "errback-True": [1, 0],
        "raises-": [1, 1],
        "raises-False": [1, 1],
        "raises-True": [1, 0],
    } == times(crawls)
    assert 6 == len(crawls[0].items)


# Dead pages


class LinksAlways(Project):
    """Each crawl has the links."""

    pages = ("dead", "gone", "good")

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)
        yield from super().links()


def test_a_dead_page_is_tried_by_three_crawls_in_a_row(done_project: Any) -> None:
    """Then one line names it. A later link makes it new."""
    crawls = done_project(*[LinksAlways] * 5, answers={"/dead": [503], "/gone": [None]})
    expected = {"dead": [1] * 5, "gone": [1] * 5, "good": [1, 0, 0, 0, 0], "start": [1] * 5}
    assert expected == times(crawls)
    warnings = [[*crawl.warnings("given up"), *crawl.warnings("have failed")] for crawl in crawls]
    assert [1, 1, 2] == [*map(len, warnings[:3])]
    for page in ("dead", "gone"):
        [line] = crawls[2].warnings(f"/{page}")
        assert "is given up: it failed in 3 crawls in a row" in line
    counts = [[end.stats.get(f"tbloom/{of}", 0) for end in crawls] for of in ("failed", "given_up")]
    assert [[2, 2, 0, 2, 2], [0, 0, 2, 0, 0]] == counts


class EndsByAnError(Project):
    """The page fails in each crawl; in the third one after an error has ended the crawl."""

    pages = ("a",)

    def parse(self, response: Response) -> Any:
        if self.number == 2:
            crawl_of(self.crawler).end()
        raise ValueError(response.url)


def test_a_crawl_that_ends_by_an_error_gives_nothing_up(done_project: Any) -> None:
    """Which changes no claims: the next crawl takes it."""
    crawls = done_project(*[EndsByAnError] * 5)
    assert "tbloom_error" == crawls[2].reason
    assert {"a": [1, 1, 1, 1, 1]} == times(crawls)
    counts = [[end.stats.get(f"tbloom/{of}", 0) for end in crawls] for of in ("failed", "given_up")]
    assert [[1, 1, 1, 0, 1], [0, 0, 0, 1, 0]] == counts


class FailsInBetween(Project):
    pages = ("a",)


class LinksOnce(FailsInBetween):
    """Only the first crawl has the link, with a session in its cookies and headers."""

    def links(self) -> Iterator[Any]:
        if not self.number:
            yield self.request("a", cookies={"session": "0"}, headers={"X-Session": "0"})


class GoesVia(Part):
    """A downloader middleware that chooses a proxy and a name for each request that has none, as those that rotate them do."""

    def process_request(self, request: scrapy.Request) -> None:
        number = self.crawler.spider.number
        request.meta.setdefault("via", number)
        request.headers.setdefault("X-Via", str(number))


class NotesWhatIsSent(Part):
    """A downloader middleware behind all others."""

    def process_request(self, request: scrapy.Request) -> None:
        sent = [request.headers[name].decode() for name in ("X-Via", "X-Session", "Cookie")]
        self.crawler.spider.said.append([request.meta["via"], *sent])


@pytest.mark.parametrize("retries", [0, 1])
def test_a_page_is_taken_over_without_what_middlewares_put_in(
    done_project: Any, retries: int
) -> None:
    """A dead proxy would stay with it for ever. Its link's own headers and cookies are sent again."""
    more = {"DOWNLOADER_MIDDLEWARES": {GoesVia: 50, NotesWhatIsSent: 999}, "RETRY_TIMES": retries}
    more |= {"RETRY_ENABLED": bool(retries)}
    answers = {"/a": [503, *[503] * retries, 200]}
    crawls = done_project(LinksOnce, LinksOnce, answers=answers, **more)
    first, second = ([number, str(number), "0", "session=0"] for number in (0, 1))
    assert [[first] * (1 + retries), [second]] == [crawl.said for crawl in crawls]


class FillsItsItem(LinksOnce):
    """The callback of a page fills an item of the page before, and then raises an exception."""

    #: Of what else the item gets.
    more: Any = 1

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path, cb_kwargs={"item": {"prices": []}}, **more)

    def parse(self, response: Response, item: dict[str, Any]) -> Any:
        item["prices"].append(self.more)
        self.said.append(len(item["prices"]))
        if path_of(response):
            raise ValueError


class FillsItWithWhatCanNotBeWritten(FillsItsItem):
    more = Selector(text="<a>")


@pytest.mark.parametrize("spider", [FillsItsItem, FillsItWithWhatCanNotBeWritten])
def test_a_failed_page_is_taken_over_as_it_was_linked(done_project: Any, spider: Any) -> None:
    """Without what its callback has put into the item; and it fails three times, whatever that is."""
    crawls = done_project(*[spider] * 5)
    assert {"a": [1, 1, 1, 0, 0]} == times(crawls)
    assert [[1], [1], [1], [], []] == [crawl.said for crawl in crawls]


class CopiesMeta(LinksOnce):
    """A page that was tried twice has a link with its meta."""

    def parse(self, response: Response) -> Any:
        if path_of(response) == "a":
            yield self.request("b", meta=response.meta)


def test_a_page_taken_over_is_retried_from_the_beginning(done_project: Any) -> None:
    """Its link has the count of another page's retries."""
    answers, more = {"/a": [503, 503, 200], "/b": [503]}, {"RETRY_ENABLED": True, "RETRY_TIMES": 2}
    crawls = done_project(CopiesMeta, CopiesMeta, answers=answers, **more)
    assert {"a": [3, 0], "b": [1, 3]} == times(crawls)


# Crawlers that do not end


class Impatient(Project):
    """Follows links to a failed page again after a moment."""

    patience = 0.01

    async def start(self) -> AsyncIterator[Any]:
        pages: Any = crawl_of(self.crawler)
        pages.scheduler.requests.failures.pause = self.patience
        async for request in super().start():
            yield request

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        await asyncio.sleep(0.5)
        yield {"page": path_of(response)}


class LinksToASlowPage(Impatient):
    """Links to a page once it has failed, and again and again while its callback runs. A redirect leads to another one."""

    pages = ("a", "list", "to")

    def request(self, path: str, **more: Any) -> scrapy.Request:
        meta = {"tbloom_within": 1} if path == "list" else {}
        return super().request(path, meta=meta, **more)

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        while self.crawler.stats.get_value("tbloom/failed", 0) < 3:  # noqa: ASYNC110 - a stat
            await asyncio.sleep(0.01)
        for _ in range(200):
            if len(self.items) == 3:
                break
            for page in ("a", "list", "target"):
                yield self.request(page)
            await asyncio.sleep(0.05)


def test_an_endless_crawl_tries_failed_pages_again_after_a_pause(done_project: Any) -> None:
    """When they are linked again, however often they have failed, until they are done; so are a list and the target of a redirect, which
    a link finds free."""
    answers = {"/to": ["/target"], "/a": [*[503] * 4, 200]}
    answers |= {f"/{page}": [503, 200] for page in ("list", "target")}
    first, second = done_project(LinksToASlowPage, FailsInBetween, answers=answers)
    assert {"a": [5, 0], "list": [2, 0], "target": [2, 0], "to": [1, 1]} == times([first, second])
    assert ["a", "list", "target"] == sorted(item["page"] for item in first.items)


class LinksWhenIdle(Impatient):
    """An idle crawl links to the page, twice at once, as long as it fails."""

    patience = 0.3

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, scrapy.signals.spider_idle)
        return spider

    def idle(self) -> None:
        if not self.items:
            for _ in range(2):
                self.crawler.engine.crawl(self.request("a"))
            raise DontCloseSpider


@pytest.mark.parametrize("failures", [pytest.param(1, marks=pytest.mark.check), 3])
def test_a_third_failure_is_fetched_again_after_a_pause(done_project: Any, failures: int) -> None:
    """Once for all links, whether its claim was dropped or is the crawl's."""
    spiders = [*[FailsInBetween] * (failures - 1), LinksWhenIdle, FailsInBetween]
    crawls = done_project(*spiders, answers={"/a": [*[503] * failures, 200]})
    assert [*[1] * (failures - 1), 2, 0] == times(crawls)["a"]


# A callback whose output has collections in it


class YieldsCollections(Project):
    """In the first crawl: lists of items or requests in place of these, as one that calls another one and forgets "from"."""

    pages = ("items", "requests", "generator", "tuple", "coroutine", "fine", "stored")

    def parse(self, response: Response) -> Any:
        page, item = path_of(response), {"page": path_of(response)}
        request = response.follow(f"/{page}-link", self.link)
        response.meta["tbloom_done"] = True if page == "stored" else None
        if self.number or page == "fine":
            return [request] if page in ("requests", "generator", "tuple") else [item]
        output: dict[str, Any] = {
            "requests": [request],
            "generator": response.follow_all([f"/{page}-link"], self.link),
            "tuple": (item, request),
            "coroutine": self.later(page) if page == "coroutine" else None,
        }
        return [output.get(page, [item])]

    def link(self, response: Response) -> Any:
        yield {"page": path_of(response)}

    async def later(self, page: str) -> Any:
        return {"page": page}

    def closed(self, _: str) -> None:
        self.items.clear()  # a generator can't be sent to the test


class Passes(Part):
    """A pipeline that takes anything."""

    def process_item(self, item: Any) -> Any:
        return item


@pytest.mark.parametrize(
    "stores",
    [*(pytest.param(each, marks=pytest.mark.check) for each in ("nothing", "pipeline")), "feed"],
)
def test_a_page_whose_callback_yields_a_collection_has_failed(
    done_project: Any, tmp_path: Path, stores: str
) -> None:
    """phpBB-forum-scraper#5, scrapy#7119: Scrapy takes it for one item, and a feed at most says so."""
    more: dict[str, Any] = {
        "nothing": {},
        "pipeline": {"ITEM_PIPELINES": {Passes: 1}},
        "feed": {"FEEDS": {str(tmp_path / "feed"): {"format": "jsonlines"}}},
    }[stores]
    first, second = done_project(*[YieldsCollections] * 2, **more)
    assert names(YieldsCollections.pages) == names(first.fetched)
    failed = ["coroutine", "generator", "items", "requests", "tuple"]
    links = ["generator-link", "requests-link", "tuple-link"]
    if stores == "pipeline":  # of which Scrapy awaits the result
        failed.remove("coroutine")
    if stores == "feed":  # which has refused it, whatever the callback says
        failed.append("stored")
    assert sorted(failed + links) == names(second.fetched)
    left = {stat: n for stat, n in first.stats.items() if stat.startswith("tbloom/failed/output/")}
    coroutine = {} if stores == "pipeline" else {"coroutine": 1}
    assert {"list": 2, "generator": 1, "tuple": 1, **coroutine} == {
        s.rpartition("/")[2]: n for s, n in left.items()
    }
    [warning] = first.warnings("which Scrapy takes for one item")
    assert "Use yield from" in warning
