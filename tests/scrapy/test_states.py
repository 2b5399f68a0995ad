"""The table of a page's way, and the real objects in every order of what Scrapy may do: a page ends once, and rightly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.python.failure import Failure

from tbloom.scrapy.claims import pages as module
from tbloom.scrapy.claims.page import Page, Token
from tbloom.scrapy.claims.states import ENDS, TABLE, Event, State, after
from tbloom.scrapy.settings import CLAIM

Moves = Iterator[tuple[str, Callable[[], Any]]]

URL = "https://example.com/a"
SETTINGS = Settings({"TBLOOM_MARK": "done"})
WAYS_OUT = {"taken", "turn", "200", "queued", "ends", "retry queued", "stored"}


def test_every_sequence_of_events_ends_and_no_end_is_left() -> None:
    """By states: what follows depends on nothing else, so this holds for sequences of any length."""
    reached, waiting = {State.QUEUED}, {State.QUEUED}
    while waiting:
        waiting = {after(state, event)[0] for state in waiting for event in Event} - reached
        reached |= waiting
    assert {*State} == reached
    for state, event in product(State, Event):
        to, known = after(state, event)
        assert known == ((state, event) in TABLE)
        if not known or state in ENDS:  # nothing impossible marks a page
            assert (state if state in ENDS else State.FAILED, False) == (to, known)
        assert to in ENDS or event is not Event.LEFT_OVER


class Try:
    """A page object, and what Scrapy does with it. A page that is asked for again has several."""

    def __init__(self, game: Game, page: Any, request: Request) -> None:
        self.game, self.pages, self.page, self.request = game, game.pages, page, request
        self.number, self.places = page.token.number, set[object]()
        self.result: Any = None
        self.back, self.retries, self.outputs, self.items = [list[Any]() for _ in range(4)]
        self.begun = self.target = 0
        self.is_lost = self.is_retried = self.would_fail = self.has_failed = self.is_in_circle = (
            False
        )

    def moves(self) -> Moves:
        state = self.page.state
        yield from self.downloads() if state is State.DOWNLOADING else ()
        if self.retries:
            yield "retry queued", self.is_asked_for
            yield "retry dropped", self.is_dropped
            yield "retry unscheduled", partial(self.loses, self.retries)
        if self.back:
            yield from (("queued", self.enters), ("refused", partial(self.enters, queued=False)))
            yield "to seen", partial(self.leads, self.pages.happens, Event.TO_SEEN)
            if all(page.token.number == self.number for page, _ in self.game.ended):
                yield "to work", self.to_work
        if self.begun == 1 and state is State.PARSING:
            yield "more", self.begins
        if self.outputs:
            yield from (("ends", self.ends), ("raises", partial(self.ends, ValueError())))
            yield from (("item", self.item), ("retry", self.retry), ("copy", self.copy))
            if self.begun == 1 and not self.request.errback:
                yield "recovers", self.recovers
        if self.items:
            yield from (("stored", self.item_ends), ("fails", self.item_fails))
            yield "vanishes", partial(self.loses, self.items)

    def downloads(self) -> Moves:
        results: list[Any] = [Response(URL, n, request=self.request) for n in (200, 503)]
        results += [t.result for t in self.game.tries if t.outputs and not t.request.errback][:1]
        for name, result in zip(("200", "503", "same"), results, strict=False):
            yield name, partial(self.given, result, "goes on")
            yield name + " raises", partial(self.given, result, "raises")
        for name, error in (("failure", OSError()), ("ignored", IgnoreRequest())):
            for errback in ("goes on", "returns", "raises", ""):
                yield f"{name} {errback}", partial(self.given, Failure(error), errback)
        # The engine schedules it at once, unless a handler of request_scheduled drops it.
        yield "unscheduled", partial(self.pages.fetched, Request(URL), self.page)
        yield "request", self.another

    def given(self, result: Any, then: str) -> None:
        """The downloader gives it; then the callback, or an errback, goes on, returns, or raises."""
        error = getattr(result, "value", None)
        self.would_fail = isinstance(error, OSError) if error else result.status == 503
        self.has_failed = then == "raises"
        self.request.errback = print if error and then else None
        result = self.pages.fetched(result, self.page)
        if not error:
            self.pages.reaches_callback(result)
        self.result = Failure(error) if error else result  # Scrapy passes on another Failure
        if then == "goes on":
            self.begins()
        elif then == "returns":
            self.pages.output_may_have_ended(self.page)
        elif then:
            self.pages.spider_error(Failure(ValueError()), self.result)

    def another(self) -> None:
        self.back.append(self.pages.fetched(Request(URL), self.page))
        assert self.page is self.pages.returning(self.back[0])

    def enters(self, *, queued: bool = True) -> None:
        urls = (f"{self.number}{len(self.game.tries)}", *self.page.token.fingerprints)
        self.page.token = self.page.token._replace(fingerprints=urls)
        if queued:
            self.game.enqueue(self.page, self.back[0])
        self.has_failed |= not queued
        self.leads(self.pages.happens, Event.ENQUEUED if queued else Event.REFUSED)

    def is_asked_for(self) -> None:
        self.is_retried = True
        assert self.pages.keep_retry(self.retries.pop())

    def is_dropped(self) -> None:
        """A handler of ``request_scheduled`` drops the retry."""
        self.pages.request_scheduled(self.retries.pop())

    def leads(self, tell: Callable[[Page, Any], Any], to: Any) -> None:
        self.back.clear()
        tell(self.page, to)

    def to_work(self) -> None:
        """The one of the two pages leads to the other: if both do, it is a circle."""
        other = Request(URL, meta={CLAIM: f"ab {3 - self.number} 0 0{3 - self.number}"})
        tries = self.game.tries_of(3 - self.number) or [self.game.taken(other)]
        self.is_in_circle = any(each.page.state is State.FOLLOWING for each in tries)
        self.has_failed, self.target = self.is_in_circle, 3 - self.number
        self.leads(self.pages.follow, tries[-1].page.token.fingerprints[0])

    def begins(self) -> None:
        assert self.page is self.pages.page_of(self.result), "it has ended too early"
        self.begun += 1
        self.outputs.append(self.pages.following(self.result))
        self.tell = self.outputs[-1].__enter__()

    def ends(self, error: Exception | None = None) -> None:
        self.has_failed |= error is not None
        self.outputs.pop().__exit__(error and type(error), error, None)

    def recovers(self) -> None:
        """A middleware does; what it gives comes in the same turn."""
        self.would_fail = True
        self.pages.callback_raised(self.result, ValueError())
        self.ends()
        self.begins()

    def copy(self) -> None:
        meta = getattr(self.result, "meta", self.request.meta)
        for copy in (Request(URL, meta=meta), Request(URL + "/b", meta=meta, dont_filter=True)):
            self.tell(copy)
            self.pages.request_scheduled(copy)
            assert not self.pages.keep_retry(copy), "a copied token counts"

    def retry(self) -> None:
        """``get_retry_request``, or by hand. A second one is no page's."""
        request = self.request.replace(dont_filter=True, errback=None)
        if self.begun == 1:
            request.meta["retry_times"] = self.request.meta.get("retry_times", 0) + 1
        is_first = self.page.retry is None
        self.tell(request)
        if is_first:
            self.retries.append(request)
        else:
            self.pages.request_scheduled(request)
            assert not self.pages.keep_retry(request), "it is fetched as two pages"

    def item(self) -> None:
        self.items.append({})
        self.tell(self.items[-1])

    def item_ends(self) -> None:
        """A pipeline has made another one of it."""
        self.game.place, made = object(), {"made": True}
        self.places.add(self.game.place)
        self.pages.outputs.processed(self.items.pop(), made)
        self.pages.item_ended(made, self.result, signals.item_scraped)

    def item_fails(self) -> None:
        """After a pipeline has handed on an item of its own."""
        self.has_failed = True
        self.pages.item_ended({}, self.result, signals.item_scraped)
        error = Failure(ValueError())
        self.pages.item_ended(self.items.pop(), self.result, signals.item_error, error)

    def loses(self, things: list[Any]) -> None:
        """A middleware nearer to the engine drops it without an event."""
        things.pop()
        self.is_lost = self.has_failed = True


class Game:
    """Scrapy, which does what the moves say. With ``at_once``, the event loop turns after each of them."""

    def __init__(self, later: list[Callable[[], None]], *, at_once: bool) -> None:
        self.later, self.at_once = later, at_once
        self.ended: list[tuple[Page, State]] = []
        #: Where the item is that has passed the pipelines last.
        self.place: object = None
        self.pages = module.Pages(
            SETTINGS,
            lambda page: self.ended.append((page, page.state)),
            self.enqueue,
            lambda: {self.place},
        )
        self.queue, self.tries = [Request(URL, meta={CLAIM: "ab 1 0 01"})], list[Try]()

    def enqueue(self, page: Page, request: Request) -> None:
        if page.state is not State.FAILED:  # else it is no page's
            page.token.write(request)
            self.queue.append(request)

    def tries_of(self, number: int) -> list[Try]:
        return [each for each in self.tries if each.number == number]

    def moves(self) -> Moves:
        yield from [("turn", self.turn)] if self.later else ()
        for at, each in enumerate(self.tries):
            yield from ((f"{at}: {name}", move) for name, move in each.moves())
        yield from [("taken", lambda: self.taken(self.queue.pop(0)))] if self.queue else ()

    def play(self, move: Callable[[], Any]) -> None:
        move()
        if self.at_once:
            self.turn()
        inside = [t for t in self.tries if t.back or t.retries or t.outputs or t.items]
        assert not [t for t in inside if t.page.state in ENDS], "it has ended too early"

    def taken(self, request: Request) -> Try:
        token: Any = Token.of(request)
        self.pages.taken(token, request, "")
        self.tries.append(Try(self, self.pages.fetching(request), request))
        return self.tries[-1]

    def turn(self) -> None:
        while self.later:
            self.later.pop(0)()

    def finish(self, at: int) -> None:
        """Everything leaves the engine, the oldest (0) or the newest try (-1) first."""
        while ways := [move for name, move in self.moves() if name.split(": ")[-1] in WAYS_OUT]:
            self.play(ways[at])
        lost = {each.number for each in self.tries if each.is_lost}
        circle = {1, 2} if any(each.is_in_circle for each in self.tries) else set()
        assert {
            t.target for t in self.tries if t.page.state not in ENDS and not t.is_lost
        } <= lost | circle
        self.pages.end_all()
        kept = ("_by_id", "_followers", "_passed_on", "_ending")
        assert not any(vars(self.pages)[name] for name in kept), "something is left"
        assert not vars(self.pages.outputs)["_by_id"], "an output is left"
        states = {page.token.number: state for page, state in self.ended}
        assert len(self.ended) == len(states) == len({each.number for each in self.tries})
        for page, state in self.ended:
            tries = self.tries_of(page.token.number)
            assert [page] == [t.page for t in tries if t.page.state is not State.PASSED_ON]
            bad = any(t.has_failed or (t.would_fail and not t.is_retried) for t in tries)
            bad |= any(states.get(t.target) is State.FAILED for t in tries)
            assert (State.FAILED if bad else State.MARKED) is state is page.state
            urls = {url for t in tries for url in t.page.token.fingerprints}
            assert urls == {*page.token.fingerprints}, "a URL keeps its claim"
            places = {place for t in tries for place in t.places}
            assert bad or places <= page.places, "items are not waited for"


@pytest.mark.parametrize("depth", [6, pytest.param(7, marks=pytest.mark.check)])
@pytest.mark.parametrize("at_once", [False, True], ids=["turns are moves", "turns at once"])
@pytest.mark.parametrize("leaves", [0, -1], ids=["oldest first", "newest first"])
def test_every_order_of_moves(
    monkeypatch: pytest.MonkeyPatch, depth: int, leaves: int, *, at_once: bool
) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(module, "call_later", lambda _, *call: later.append(partial(*call)))
    monkeypatch.setattr(module.logger, "error", lambda *words: pytest.fail(str(words)))
    played, waiting = 0, [["taken"]]
    while waiting:
        game, names = Game(later, at_once=at_once), waiting.pop()
        try:
            for name in names:
                game.play(dict(game.moves())[name])
            waiting += [[*names, name] for name, _ in game.moves() if len(names) < depth]
            game.finish(leaves)
        except BaseException as error:
            raise AssertionError(names) from error
        played += 1
    print(f"{played:,} sequences")


def test_a_page_ends_after_the_engine_has_scheduled_its_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scrapy pulls a callback's output ahead: it may have ended while links wait behind items in slow pipelines."""
    monkeypatch.setattr(module, "call_later", lambda _, call: call())
    ended, link = list[State](), Request(f"{URL}/link")
    pages = module.Pages(SETTINGS, lambda page: ended.append(page.state), pytest.fail)
    request = Request(URL)
    pages.taken(Token("session", 1, ("aa",)), request, "")
    response = pages.fetched(Response(URL, request=request), pages.fetching(request))
    with pages.following(response) as tell:
        for found in (link, link, Request(URL)):
            tell(found)
    last = Request(URL)
    for scheduled in (link, last, link):
        pages.request_scheduled(scheduled)
        assert [] == ended
    pages.end_all()
    assert [State.FAILED] == ended
