"""The pages in work, in every order of what Scrapy may do: a page ends once, and is committed only if nothing of it has failed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.python.failure import Failure

from tbloom.scrapy.crawl import Stage
from tbloom.scrapy.done import committer as ending
from tbloom.scrapy.done import work as module
from tbloom.scrapy.done.failures import Failures
from tbloom.scrapy.done.page import EndedPage, Page, Token
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.done.work import Work
from tbloom.scrapy.settings import TOKEN

URL = "https://example.com/a"
Moves = Iterator[tuple[str, Callable[[], Any]]]


class Game:
    """A page, and what Scrapy may do with it next."""

    def __init__(self, later: list[Callable[[], Any]]) -> None:
        self.later = later
        self.committed, self.failed, self.queue = list[Page](), list[EndedPage](), list[Request]()
        crawler: Any = SimpleNamespace(
            settings=Settings(),
            get_downloader_middleware=lambda _: None,
            spider=None,
            signals=SimpleNamespace(connect=lambda *_: None),
        )
        stored: Any = SimpleNamespace(buffers=())
        crawl: Any = SimpleNamespace(
            committer=SimpleNamespace(
                add=self.committed.append, fail=lambda page, _: self.failed.append(page)
            ),
            failures=SimpleNamespace(pages={}),
            _asked={},
            _claimed=self.enqueue,
        )
        self.pages = crawl.work = Work(crawler, stored, partial(Pages._ended, crawl))
        self.request: Any = None
        self.result: Any = None
        self.page: Any = None
        self.state = "queued"
        #: Whether something has failed for good, and whether its callback is not known to have got a response.
        self.bad, self.not_called = False, True
        #: What a callback has said of it.
        self.said: bool | None = None
        self.again = self.is_reached = self.lost_token = False
        self.holders: set[Any] = set()
        self.enqueue(Request(URL), Token("ab", ("01",)))

    def enqueue(self, request: Request, token: Token | None) -> None:
        assert "tbloom_done" not in request.meta
        if token:
            request.meta[TOKEN] = str(token)
            self.queue.append(request)
            self.state = "queued"
        else:
            assert "tbloom_page" not in request.meta
            self.lost_token = True

    def moves(self) -> Moves:
        if self.state == "queued":
            yield "taken", self.taken
        elif self.state == "downloading":
            yield from self.downloads()
        elif self.state == "moving":
            yield "queued", self.queued
            yield "seen", self.seen
            yield "busy", self.busy
        elif self.state == "scraping":
            yield from self.scrapes()

    def downloads(self) -> Moves:
        for status in (200, 404, 500):
            response = Response(URL, status, request=self.request)
            yield str(status), partial(self.fetched, response)
        yield "another request's", partial(self.fetched, Response(URL, request=Request(URL + "/o")))
        yield "failure", partial(self.fetched, Failure(OSError()))
        yield "ignored", partial(self.fetched, Failure(IgnoreRequest()))
        yield (
            "forbidden",
            partial(self.fetched, Failure(IgnoreRequest("Forbidden by robots.txt"))),
        )
        yield "redirect", partial(self.middleware, self.request.replace(url=URL + "/b"))
        yield "new request", partial(self.middleware, Request(URL + "/c"))
        yield "dropped", partial(self.middleware, Request(URL + "/c"), is_scheduled=False)

    def scrapes(self) -> Moves:
        if isinstance(self.result, Response) and not self.is_reached:
            yield "reached", self.reached
        yield "raises", self.raises
        yield "error", self.error
        yield "item fails", self.item_fails
        yield "item", self.item
        yield "says done", partial(self.says, done=True)
        yield "says failed", partial(self.says, done=False)
        if not self.again:
            yield "again", self.asks
        yield "copy", self.copy
        yield "inline", self.inline
        yield "scraped", self.scraped

    def taken(self) -> None:
        self.request = self.queue.pop()
        token = Token.of(self.request)
        assert token
        self.pages.begin(self.request, token, set())
        self.state, self.not_called, self.again = "downloading", True, False
        self.is_reached = False

    def fetched(self, result: Any) -> None:
        page = self.pages.fetching(self.request)
        assert page
        self.result = self.pages.fetched(result, page)
        if isinstance(self.result, Failure):
            self.result.request = self.request  # type: ignore[attr-defined]
            self.not_called = "Forbidden" not in str(result.value)
        else:
            self.not_called = result.status in (200, 500)
        assert self.pages.of(self.result) is page
        self.state = "scraping"

    def middleware(self, request: Request, *, is_scheduled: bool = True) -> None:
        page = self.pages.fetching(self.request)
        assert page
        self.given = self.pages.fetched(request, page)
        self.state = "ended"
        if is_scheduled:
            self.page = self.pages.continued(self.given)
            assert self.page is page
            assert self.pages.continued(self.given) is None
            self.state = "moving"

    def queued(self) -> None:
        fingerprints = (*self.page.token.fingerprints, "02")
        token = self.page.token._replace(fingerprints=fingerprints)
        self.given.meta[TOKEN] = str(token)
        self.pages.requeue(self.page, token)
        self.queue.append(self.given)
        self.state = "queued"

    def seen(self) -> None:
        self.not_called, self.state = False, "ended"
        self.page.counts_as_done = True
        self.pages.end(self.page)

    def busy(self) -> None:
        self.bad, self.state = True, "ended"
        self.page.exception = "redirect"
        self.pages.end(self.page)

    def reached(self) -> None:
        self.is_reached, self.not_called = True, False
        self.pages.reached_callback(self.result)

    def raises(self) -> None:
        self.bad = True
        self.pages.callback_raised(self.result, ValueError())

    def error(self) -> None:
        self.bad = True
        self.pages._spider_error(Failure(ValueError()), self.result)

    def item_fails(self) -> None:
        self.bad = True
        self.pages._item_error(Failure(ValueError()), self.result)

    def item(self) -> None:
        holder = object()
        self.holders.add(holder)
        page = self.pages.of(self.result)
        assert page
        page.holders.add(holder)

    def says(self, *, done: bool) -> None:
        self.said = self.result.request.meta["tbloom_done"] = done

    def asks(self) -> None:
        self.again = True
        assert self.pages.asked_again(self.request.replace(dont_filter=True), None)

    def copy(self) -> None:
        meta = self.request.meta
        for copied in (
            Request(URL, meta=meta),
            Request(URL + "/d", meta=meta, dont_filter=True),
        ):
            assert not self.pages.asked_again(copied, None)
            assert self.pages.continued(copied) is None

    def inline(self) -> None:
        """A callback downloads its own request, or a copy of it."""
        assert self.pages.fetching(self.request) is None
        assert self.pages.fetching(self.request.copy()) is None

    def scraped(self) -> None:
        self.state = "ended"
        self.pages.scraped(self.request)

    def turn(self) -> None:
        while self.later:
            self.later.pop(0)()

    def finish(self) -> None:
        ways = {"taken", "200", "queued", "reached", "scraped"}
        while found := [move for name, move in self.moves() if name in ways]:
            found[0]()
            self.turn()
        assert not self.pages.pages, "a page is left"
        assert len(self.committed) + len(self.failed) == 1, "it ends once"
        is_bad = (self.bad or self.not_called) if self.said is None else not self.said
        assert is_bad == bool(self.failed)
        assert self.lost_token <= (is_bad or self.said is not None)
        for page in self.committed:
            assert self.holders <= page.holders, "items are not waited for"


@pytest.mark.parametrize("depth", [4, pytest.param(5, marks=pytest.mark.check)])
def test_a_page_ends_once_in_every_order(monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    later: list[Callable[[], Any]] = []
    monkeypatch.setattr(module, "call_soon", lambda *call: later.append(partial(*call)))
    waiting: list[list[str]] = [[]]
    while waiting:
        names = waiting.pop()
        game = Game(later)
        try:
            for name in names:
                dict(game.moves())[name]()
                game.turn()
            if len(names) < depth:
                moves = [name for name, _ in game.moves() if names.count(name) < 3]
                waiting += [[*names, name] for name in moves]
            game.finish()
        except BaseException as error:
            raise AssertionError(names) from error


def test_a_page_that_waits_for_a_call_goes_on_if_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call would have counted this crawler in the page's claim, and is not made: the crawl ends."""
    timers: list[Callable[[], None]] = []
    monkeypatch.setattr(ending, "call_later", lambda _, call: timers.append(call))

    def flush() -> None:
        raise OSError(errno.ENOSPC, "no room")

    crawl: Any = SimpleNamespace(
        is_ending=False,
        stage=Stage.RUNNING,
        queue="pages",
        crawler=SimpleNamespace(settings=Settings()),
        end=lambda: setattr(crawl, "is_ending", True),
    )
    seen: Any = SimpleNamespace(keeps_notes=True, config=SimpleNamespace(slices=1))
    inbox: Any = SimpleNamespace(received=0, settled=0)
    stored: Any = SimpleNamespace(holder_of=lambda _: None, has_lost=lambda _: False, flush=flush)
    committer = ending.Committer(crawl, seen, inbox, stored, Failures(crawl))
    request = Request(URL)
    done, waits = (
        Page(first, Token("ab", (first,), deaths), request, request, URL, set())
        for first, deaths in (("01", 0), ("02", 1))
    )
    committer.add(done)
    noted = committer.note_death(waits)
    timers.pop()()
    assert (True, True) == (noted.called, crawl.is_ending)
