"""What is promised of filters with a window, and of claims: see ``accounts``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tbloom import Claim
from tests.simulation.accounts import NOBODY, Account, Outcomes, Pending, subsets
from tests.simulation.histories import GONE, MUST_HAPPEN, Op
from tests.simulation.server import Clock

#: The length of a slice (ms), and how many there are.
LENGTH, SLICES = 60_000, 4
#: Since when a caller does not know of a claim that a late copy of its call has made.
_UNKNOWN = -2
#: The same of a claim that its session had ended, and with which the server has come back.
_RESTORED = -3


class Window(NamedTuple):
    """What a filter with a window remembers of an item."""

    #: The slices that hold it, by their numbers since the epoch.
    slices: frozenset[int] = frozenset()
    #: Slices that have left, and would be there again if the clock were set back.
    left: frozenset[int] = frozenset()
    pending: Pending = frozenset()
    #: Who works on the item: the object whose session has claimed it, NOBODY if that left it to others; since when its
    #: caller does not know of the claim; whether it has a note.
    holder: tuple[int, int | None, bool] | None = None
    #: Which parameters are stored: see ``Account.parameters``.
    parameters: int = 0
    saved: Any = None


class WindowAccount(Account):
    """The promises of a filter with a window.

    - An item is new if none of the slices that are asked holds it. It is remembered from then on, in the current slice, or with
      ``keep`` in that which leaves after so many slices. Who got an error is answered "new" when asking again.
    - An item that was answered "new", or committed, is contained until its slice has left.
    - Of the sessions that claim an item, one is answered NEW, until it commits or releases the item, leaves it to others, or dies.
      The item is SEEN once it is committed. A claim whose caller got an error ends with the next heartbeat.
    """

    NOTHING = Window()

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        super().__init__(clock, items)
        #: Items that were claimed with a note.
        self.noted = set[str]()
        #: The slice that was current when a call began, by the call's number.
        self.begun = dict[int, int]()
        #: Objects that have left a session without a word, because ``end_session`` has failed.
        self.silent = set[int]()

    @property
    def current(self) -> int:
        """The number of the current slice."""
        return self.now // LENGTH

    def time_changes(self, change: Callable[[], None]) -> None:
        super().time_changes(change)
        for history in self.histories.values():
            over = {
                op.number
                for op in history.open.values()
                if self.current - self.begun.get(op.number, self.current)
                >= (op.arguments[history.item].get("keep") or SLICES)
            }
            if over:
                history.change_cases(partial(_made_anew, over))

    def at_another_time(self, state: Window) -> Iterable[Window]:
        live = {s for s in state.slices if s + SLICES > self.current}
        left = state.left | (state.slices - live)
        back = [s for s in left if s + SLICES > self.current]
        for there in [live] if not back else [live, live | {*back}]:
            for still in self._pending_later(state):
                yield state._replace(slices=frozenset(there), left=left - {*back}, pending=still)

    def apply(self, op: Op, item: str, state: Window) -> Outcomes:
        own = self.parameters.get(op.store, 0)
        for answer, after in super().apply(op, item, state):
            if op.verb == "reconfigure":
                yield answer, after._replace(parameters=own)
            elif own == state.parameters or len(after.pending) < len(state.pending):
                yield answer, after
            elif op.beside and answer is False and after == state:
                # It has fetched an answer from before, and another call of its object has taken it.
                yield answer, after

    def restored(self, before: Window, saved: Window) -> Window:
        if before.holder in {None, saved.holder} or before.holder[0] == NOBODY:
            if saved.holder is None or (before.holder == saved.holder and saved.holder[1] is None):
                return saved
            # Its session may have ended it, also as the beginning of a call that has no answer yet.
            return saved._replace(holder=(saved.holder[0], _RESTORED, saved.holder[2]))
        # The server has forgotten the claim, and its session has not.
        return saved._replace(holder=(before.holder[0], _UNKNOWN, before.holder[2]))

    def reconfigure(self, _op: Op, _: str, state: Window) -> Outcomes:
        return [(None, state)]

    def lasts(self, arguments: Any) -> int:
        return (self.current + (arguments.get("keep") or SLICES)) * LENGTH

    def is_seen(self, state: Window, within: int | None = None) -> bool:
        """Whether one of the newest slices holds the item."""
        return any(0 <= self.current - s < (within or SLICES) for s in state.slices)

    def _with(self, state: Window, keep: int | None) -> Window:
        chosen = self.current - SLICES + (keep or SLICES)
        return state._replace(slices=state.slices | {chosen})

    def add(
        self, op: Op, _: str, state: Window, within: int | None = None, keep: int | None = None
    ) -> Outcomes:
        seen = self.is_seen(state, within)
        added = state if seen else self._with(state, keep)
        return self._added(op, state, added, is_new=not seen)

    def contains(self, _op: Op, _: str, state: Window, within: int | None = None) -> Outcomes:
        return [(self.is_seen(state, within), state)]

    def last_seen(self, _op: Op, _: str, state: Window) -> Outcomes:
        live = [s for s in state.slices if 0 <= self.current - s < SLICES]
        return [(max(live, default=None), state)]

    def import_(
        self, _op: Op, _: str, state: Window, slice_: int | None = None
    ) -> Iterable[tuple[Any, Window]]:
        """Remembered in that slice, unless a newer one has it. (How many were written is not compared.)"""
        number = self.current if slice_ is None else slice_
        has_it = any(number <= s <= self.current for s in state.slices)
        return [(None, state if has_it else state._replace(slices=state.slices | {number}))]

    def end_session(self, op: Op, _: str, state: Window) -> Outcomes:
        """Its claims are a dead session's, or become so in time if the call has failed before; another session begins."""
        yield None, self._left_to_others(op, state)
        if op.store in self.silent:
            yield None, state

    def swap(self, _op: Op, _: str, state: Window, built: frozenset[int]) -> Outcomes:
        """``built``: the slices of the other filter that hold the item."""
        return [(None, state._replace(slices=built, left=frozenset(), pending=frozenset()))]

    def claim(self, op: Op, item: str, state: Window, note: bool = False) -> Outcomes:
        if self.is_seen(state):
            yield Claim.SEEN, state
        else:
            may_have, may_not = self._may_have(op, item, state)
            if may_have:
                yield Claim.NEW, state._replace(holder=(op.store, None, note))
            if may_not:
                yield Claim.BUSY, state
        if op.beside & {"claim", "claim_many", "commit", "take_over"}:
            yield Claim.BUSY, state  # by another thread's call, whatever that will be answered

    def _may_have(self, op: Op, item: str, state: Window) -> tuple[bool, bool]:
        """Whether the object may get the claim, and whether it may not."""
        if state.holder is None or state.holder[0] == NOBODY:
            return True, False
        owner, given_up, _ = state.holder
        if owner in self.dead:
            return True, owner in self.heard_late
        if given_up is None:
            return False, True
        if given_up in {_UNKNOWN, _RESTORED}:
            return True, True
        if owner == op.store:
            return True, given_up >= op.begun
        # Its next heartbeat ends the claim, or its next call for the item.
        calls = self.histories[item].open.values()
        ends = ("_send_heartbeat", "claim", "release", "abandon_many")
        return any(c.store == owner and c.verb in ends for c in calls), True

    def commit(self, op: Op, _: str, state: Window, keep: int | None = None) -> Outcomes:
        chosen = self.current - SLICES + (keep or SLICES)
        if not any(chosen <= s <= self.current for s in state.slices):
            state = self._with(state, keep)
        return [(None, self._without_claim(op, state))]

    def release(self, op: Op, _: str, state: Window) -> Outcomes:
        return [(None, self._without_claim(op, state))]

    def abandon(self, op: Op, _: str, state: Window) -> Outcomes:
        return [(None, self._left_to_others(op, state))]

    def send_heartbeat(self, op: Op, _: str, state: Window) -> Outcomes:
        if state.holder is None or state.holder[1] is None:
            return [(None, state)]
        ended = self._left_to_others(op, state)
        # A session that the object has left without a word keeps its claims until it is silent for too long.
        may_stay = state.holder[1] == _RESTORED or op.store in self.silent
        return [(None, left) for left in ([ended, state] if may_stay else [ended])]

    def take_over(self, op: Op, item: str, state: Window, all_: bool = False) -> Outcomes:
        """True: the item's note is among those that were returned."""
        has_note = state.holder is not None and state.holder[2]
        may_have, may_not = self._may_have(op, item, state)
        # It may have found the note before another session claimed the item without one, and released it.
        if not self.is_seen(state) and (has_note or item in self.noted) and may_have:
            yield True, state._replace(holder=(op.store, None, True))
            if all_ and has_note and not may_not:
                return
        yield False, state

    def _without_claim(self, op: Op, state: Window) -> Window:
        is_own = state.holder is not None and state.holder[0] == op.store
        return state._replace(holder=None) if is_own else state

    def _left_to_others(self, op: Op, state: Window) -> Window:
        if state.holder is None or state.holder[0] != op.store:
            return state
        return state._replace(holder=(NOBODY, None, True) if state.holder[2] else None)

    def lose(self, op: Op, item: str, state: Window, answer: Any) -> Window:
        state = super().lose(op, item, state, answer)
        is_claim = answer is Claim.NEW or (op.verb == "take_over" and answer)
        if is_claim and state.holder and state.holder[:2] == (op.store, None):
            return state._replace(holder=(op.store, op.failed, state.holder[2]))
        return state

    def echo(self, op: Op) -> None:
        if op.verb == "claim":
            self._begin_copy(op, op.store, "late_claim")

    def late_claim(self, op: Op, item: str, state: Window, note: bool = False) -> Outcomes:
        """A late copy of a ``claim``."""
        if not self.is_seen(state) and self._may_have(op, item, state)[0]:
            yield None, state._replace(holder=(op.store, _UNKNOWN, note))

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Op:
        self.noted |= {item for item, how in arguments.items() if how.get("note")}
        op = super().begins(store, verb, arguments)
        self.begun[op.number] = self.current
        return op

    def failed(self, op: Op) -> None:
        super().failed(op)
        if op.verb == "end_session":
            self.silent.add(op.store)

    def answered(self, op: Op, answers: dict[str, Any]) -> None:
        super().answered(op, answers)
        if op.verb == "_send_heartbeat":
            # It has repeated what had failed before, and nothing of that comes any more.
            for history in self.histories.values():
                failed = [
                    other
                    for other in history.open.values()
                    if other.store == op.store
                    and other.failed is not None
                    and other.failed <= op.begun
                ]
                history.settle([e for e in failed if e.verb.startswith(("claim", "late_claim"))])
                history.settle([e for e in failed if e.verb.startswith(MUST_HAPPEN)], happened=True)


def _made_anew(over: set[int], case: tuple[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Calls without an answer whose items have left: the server has forgotten the answers with them."""
    state, done = case
    forgotten = {each for each in done if each[0] in over and each[1] != GONE}
    return [(state, done - some) for some in subsets(frozenset(forgotten))]
