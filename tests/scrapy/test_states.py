"""Every order of what can happen to a page: it ends once, marked only where nothing has failed, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.python.failure import Failure

from tbloom.scrapy.claims import pages as module
from tbloom.scrapy.claims.page import Page
from tbloom.scrapy.claims.pages import Pages
from tbloom.scrapy.claims.states import ENDS, TABLE, Event, State, after
from tbloom.scrapy.claims.token import Token

TOKEN = Token("ab", 1, ("cd",))
URL = "https://example.com/a"


def test_every_sequence_of_events_ends_and_no_end_is_left() -> None:
    """By states: where a sequence goes on depends on nothing else, so this holds for sequences of any length."""
    reached = waiting = {State.QUEUED}
    while waiting:
        waiting = {after(state, event)[0] for state in waiting for event in Event} - reached
        reached = reached | waiting
    assert {*State} == reached
    for state in State:
        for event in Event:
            to, known = after(state, event)
            assert known == ((state, event) in TABLE)
            if state in ENDS:
                assert (state, False) == (to, known)
            elif not known:
                assert to is State.FAILED
        assert after(state, Event.LEFT_OVER)[0] in ENDS


class Game:
    """One page, driven as Scrapy drives it, move by move; a callback's retry is a second object with the same token."""

    def __init__(self, later: list[Callable[[], None]], *, errback: bool) -> None:
        self.later, self.ends = later, list[State]()
        self.pages = Pages(
            Settings({"TBLOOM_MARK": "done"}), lambda _, state: self.ends.append(state)
        )
        self.request = Request(URL, errback=print if errback else None)
        TOKEN.write(self.request)
        self.page = self.taken(self.request)
        self.result: Any = None
        self.retry: Request | None = None
        self.items, self.outputs, self.begun = 0, 0, 0
        #: The page is in the queue again; an item or a callback has failed; a download has; a retry has ended well.
        self.is_queued = self.has_failed = self.is_doubtful = self.is_good = False

    def taken(self, request: Request) -> Page:
        self.pages.taken(TOKEN, request, "")
        page = self.pages.fetching(request)
        assert page is not None
        return page

    def moves(self) -> Iterator[str]:
        state = self.page.state
        if state is State.DOWNLOADING:
            yield from ("200", "503", "request", "failure", "ignored")
        elif state is State.RETURNING:
            yield from ("queued", "refused", "to seen", "to page in work")
        elif state is State.FOLLOWING:
            yield from ("target marked", "target fails")
        elif self.outputs:
            yield from ("item", "retry queued", "retry refused", "output ends", "output raises")
        elif self.begun < 2 and state in (State.PARSING, State.STORING):
            yield "output begins"
        if self.items:
            yield from ("item stored", "item fails")
        if self.retry:
            yield from ("retry ends well", "retry fails")
        if self.later:
            yield "turn"

    def move(self, name: str) -> None:
        getattr(self, "do_" + name.replace(" ", "_"), lambda: self.fetched(name))()

    def fetched(self, name: str) -> None:
        error = {"failure": OSError(), "ignored": IgnoreRequest()}.get(name)
        if name == "request":
            self.result = Request(URL + "/other")
        else:
            self.result = (
                Failure(error) if error else Response(URL, int(name), request=self.request)
            )
        self.is_doubtful = name in ("503", "failure")
        self.pages.fetched(self.result, self.page)

    def returned(self) -> Page:
        page = self.pages.returning(self.result)
        assert page is self.page
        return page

    def do_queued(self) -> None:
        self.pages.entered(self.returned(), queued=True)
        self.is_queued = True

    def do_refused(self) -> None:
        self.pages.entered(self.returned(), queued=False)
        self.has_failed = True

    def do_to_seen(self) -> None:
        self.pages.happens(self.returned(), Event.TO_SEEN)

    def do_to_page_in_work(self) -> None:
        other = Request(URL + "/target")
        self.pages.taken(Token("ab", 2, ("ef",)), other, "")
        self.target = self.pages.fetching(other)
        self.pages.follow(self.returned(), "ef")

    def do_target_marked(self) -> None:
        assert self.target is not None
        self.pages.happens(self.target, Event.IGNORED)
        self.ends.remove(State.MARKED)  # its own

    def do_target_fails(self) -> None:
        assert self.target is not None
        self.pages.happens(self.target, Event.FAILURE)
        self.ends.remove(State.FAILED)
        self.has_failed = True

    def do_output_begins(self) -> None:
        self.begun += 1
        self.outputs += 1
        self.pages.entering_output(self.page)

    def do_item(self) -> None:
        self.items += 1
        self.pages.yielded(self.page, {})

    def asks_again(self, *, queued: bool) -> None:
        retry = self.request.replace(dont_filter=True)
        self.pages.yielded(self.page, retry)
        page = self.pages.returning(retry)
        assert page is self.page
        self.pages.entered(page, queued=queued)
        if queued:
            self.retry = retry
        else:
            self.has_failed = True

    def do_retry_queued(self) -> None:
        if self.retry is None:
            self.asks_again(queued=True)

    def do_retry_refused(self) -> None:
        self.asks_again(queued=False)

    def do_retry_ends_well(self) -> None:
        page = self.taken(self.retry_taken())
        self.pages.happens(page, Event.IGNORED)
        self.is_good = True

    def do_retry_fails(self) -> None:
        page = self.taken(self.retry_taken())
        page.doubt = "download/OSError"
        self.pages.happens(page, Event.FAILURE)
        self.has_failed = True

    def retry_taken(self) -> Request:
        assert self.retry is not None
        retry, self.retry = self.retry, None
        return retry

    def do_output_ends(self) -> None:
        self.outputs -= 1
        self.pages.left_output(self.page)

    def do_output_raises(self) -> None:
        self.has_failed = True
        self.page.failed = self.page.failed or "callback/ValueError"
        self.do_output_ends()

    def do_item_stored(self, failed: str = "") -> None:
        self.items -= 1
        self.pages.item_ended(self.result, failed)

    def do_item_fails(self) -> None:
        self.has_failed = True
        self.do_item_stored("pipeline/P")

    def do_turn(self) -> None:
        later, self.later[:] = [*self.later], []
        for call in later:
            call()

    def finish(self) -> None:
        """Everything leaves the engine: the downloader always gives something."""
        if self.page.state is State.DOWNLOADING:
            self.fetched("200")
        while self.outputs:
            self.do_output_ends()
        while self.items:
            self.do_item_stored()
        self.do_turn()
        if self.retry:
            self.do_retry_ends_well()
        self.do_turn()
        is_open = self.page.state not in ENDS
        self.pages.end_all()
        self.has_failed |= is_open and self.page.state is State.FAILED

    def check(self) -> None:
        known = vars(self.pages)
        names = ("_by_id", "_returning", "_followers", "_families", "_ending")
        assert not [name for name in names if known[name]]
        assert self.page.state in ENDS
        assert len(self.ends) == (0 if self.is_queued else 1)
        if self.has_failed or (self.is_doubtful and not self.is_good):
            assert State.MARKED not in self.ends
        else:
            assert State.FAILED not in self.ends


@pytest.mark.parametrize("depth", [6, pytest.param(8, marks=pytest.mark.check)])
@pytest.mark.parametrize("errback", [False, True], ids=["no errback", "errback"])
def test_every_order_of_moves(
    monkeypatch: pytest.MonkeyPatch, depth: int, *, errback: bool
) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(
        module, "call_later", lambda _, call, *args: later.append(lambda: call(*args))
    )
    monkeypatch.setattr(module.logger, "error", lambda *words: pytest.fail(str(words)))
    played, waiting = 0, [()] if depth else []
    while waiting:
        sequence: tuple[str, ...] = waiting.pop()
        later.clear()
        game = Game(later, errback=errback)
        for name in sequence:
            game.move(name)
        if len(sequence) < depth:
            waiting += [(*sequence, name) for name in game.moves()]
        game.finish()
        try:
            game.check()
        except AssertionError as error:
            raise AssertionError(f"{sequence}: {game.ends}, {game.page.state}") from error
        played += 1
    print(f"{played:,} sequences")
    assert played > 1000
