"""What is promised, as small models that do one thing after another.

A model says what each verb answers, given what is remembered of one item, and what is remembered then. The promises follow from
``histories``: what callers are answered must be what the model may answer, whatever became of their calls. So of all that
add an item, one is answered "new"; who got an error gets that answer when asking again; a late copy changes nothing; a claim has
one holder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.simulation.histories import History, Op
from tests.simulation.server import START_MS, Clock

#: A pending answer "new" of an object: the object; calls that begin from this move on must get it; until when (ms).
Pending = frozenset[tuple[int, int, int]]
Outcomes = Iterable[tuple[Any, Any]]
_NEVER = 1 << 60
_CLEARS = ("clear", "swap")
#: The verbs whose methods have other names.
_METHODS = {"import": "import_", "_send_heartbeat": "send_heartbeat"}
#: In place of an object's number.
NOBODY = -1


class Account:
    """Hears of all calls and answers of a schedule. ``clear`` forgets all items; a subclass has the verbs of a store."""

    #: What is remembered of an item at first.
    NOTHING: Any

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        self.clock = clock
        #: Moves that were played; calls are ordered by it.
        self.moves = 0
        self.histories = {
            item: History(item, self.NOTHING, self.apply, self.lose) for item in items
        }
        #: Objects whose sessions are dead, with their processes; those of which the server may yet get calls.
        self.dead, self.heard_late = set[int](), set[int]()
        #: The parameters of the objects that have others than the first one: clients with other ones than are stored get an
        #: error, and change nothing.
        self.parameters: dict[int, int] = {}
        self._calls = 0

    @property
    def now(self) -> int:
        """The server's clock (ms)."""
        return START_MS + self.clock.server_ms

    # What callers do

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Op:
        """A caller asks; ``arguments``: by item."""
        self._calls += 1
        op = Op(self._calls, store, verb, arguments, self.moves)
        for history in self._of(op):
            for other in history.open.values():
                op.is_cleared |= other.verb in _CLEARS
                other.is_cleared |= verb in _CLEARS
                if other.store == store:
                    other.beside.add(verb)
                    op.beside.add(other.verb)
            history.begin(op)
        return op

    def answered(self, op: Op, answers: dict[str, Any]) -> None:
        """A caller has its answers, by item."""
        for history in self._of(op):
            history.answered(op, answers.get(history.item))
            history.settle(self.over(op, history))

    def failed(self, op: Op) -> None:
        """A caller got an error, or was cancelled."""
        op.failed = self.moves
        for history in self._of(op):
            history.failed(op)

    def refused(self, op: Op) -> None:
        """A caller got an error that says that nothing was changed."""
        for history in self._of(op):
            history.refused(op)

    def over(self, op: Op, history: History) -> list[Op]:
        """The failed calls that can't take effect any more, because the same object has asked again, and was answered."""
        return [
            other
            for other in history.open.values()
            if (other.store, kind_of(other)) == (op.store, kind_of(op))
            and other.failed is not None
            and other.failed <= op.begun
        ]

    def echo(self, op: Op) -> None:
        """A copy of a call is late: where it may take effect once more, whatever its caller is answered, that is allowed."""

    def _begin_copy(self, op: Op, store: int, verb: str) -> None:
        self._calls += 1
        copy = Op(self._calls, store, verb, op.arguments, self.moves, self.moves, is_copy=True)
        for history in self._of(op):
            history.begin(copy)

    def nothing_is_late(self) -> None:
        """No request is on its way that its caller does not wait for."""
        for history in self.histories.values():
            if copies := [op for op in history.open.values() if op.is_copy]:
                history.look_ahead()
                history.settle(copies)

    def _of(self, op: Op) -> list[History]:
        return [history for item, history in self.histories.items() if item in op.arguments]

    # What happens to the server

    def time_changes(self, change: Callable[[], None]) -> None:
        """The server's clock shows another time."""
        for history in self.histories.values():
            history.look_ahead()
        change()
        for history in self.histories.values():
            history.change(self.at_another_time)

    def at_another_time(self, state: Any) -> Iterable[Any]:
        """What may be remembered then."""
        return [state]

    def is_saved(self) -> None:
        """The server saves what it holds."""
        for history in self.histories.values():
            history.change(lambda state: [state._replace(saved=state._replace(saved=None))])

    def restarts(self) -> None:
        """It comes back with what it saved. What was not saved may be done once more, by who has had no answer yet."""

        def restarted(case: tuple[Any, frozenset[tuple[int, Any]]]) -> Iterable[Any]:
            state, done = case
            saved = state.saved or self.NOTHING
            for pending in {state.pending, saved.pending & state.pending}:
                new = self.restored(state, saved)._replace(pending=pending, saved=state.saved)
                # A call without an answer is sent again, and may meet a server that has never had it.
                for kept in subsets(done):
                    yield new, kept

        for history in self.histories.values():
            history.change_cases(restarted)

    def is_restored(self) -> None:
        """All was forgotten, and another client has put back what was saved."""
        for history in self.histories.values():
            history.change(lambda state: [(state.saved or self.NOTHING)._replace(pending=state.pending, saved=state.saved)])  # fmt: skip

    def restored(self, before: Any, saved: Any) -> Any:  # noqa: ARG002
        """What is remembered where the server comes back with what it had saved."""
        return saved

    # The model

    def apply(self, op: Op, item: str, state: Any) -> Outcomes:
        """What the call answers for an item, and what is remembered then."""
        verb: Callable[..., Outcomes] = getattr(self, _METHODS.get(kind_of(op), kind_of(op)))
        return verb(op, item, state, **op.arguments[item])

    def lose(self, op: Op, item: str, state: Any, answer: Any) -> Any:
        """What is remembered once a call has taken effect, and its caller has got an error."""
        if kind_of(op) == "add" and answer is True:
            until = self.lasts(op.arguments[item])
            since = _NEVER if op.is_cleared else op.failed
            return state._replace(pending=state.pending | {(op.store, since, until)})
        return state

    def lasts(self, arguments: Any) -> int:  # noqa: ARG002
        """Until when an answer "new" is pending (ms, by the server's clock)."""
        return _NEVER

    def _added(self, op: Op, state: Any, added: Any, *, is_new: bool) -> Outcomes:
        """What an ``add`` answers, and what is remembered then: ``added``, but for the pending answers."""
        due = [each for each in state.pending if each[0] == op.store]
        if due:
            yield True, added._replace(pending=state.pending - {*due})
        # Who began before the error came may have an answer of the call's own. And a thread that discards items drops
        # the pending answers of its object, also those that another one just asks for.
        if "discard" in op.beside or all(failed >= op.begun for _, failed, _ in due):
            yield is_new, added

    def _pending_later(self, state: Any) -> set[Pending]:
        """The answers that may be pending after a jump of the server's clock: an object may still give one from before."""
        return {frozenset(each for each in state.pending if each[2] > self.now), state.pending}

    def clear(self, op: Op, item: str, state: Any) -> Outcomes:  # noqa: ARG002
        """Forgets the item, and its pending answers."""
        return [(None, self.NOTHING._replace(saved=state.saved))]


def kind_of(op: Op) -> str:
    return op.verb.removesuffix("_many")


def subsets(done: frozenset[tuple[int, Any]]) -> Iterable[frozenset[tuple[int, Any]]]:
    found = [frozenset[tuple[int, Any]]()]
    for each in done:
        found += [some | {each} for some in found]
    return found


class Entry(NamedTuple):
    """What a store that can forget a single item remembers of it: until when (ms)."""

    until: int | None = None
    pending: Pending = frozenset()
    saved: Any = None


class ExactAccount(Account):
    """The promises of an exact filter, and of a counter of distinct members (which forgets none by itself).

    - An item is new unless it is remembered; then it is, for its ``ttl``. Who got an error is answered "new" when asking again.
    - ``discard`` forgets it: its caller is answered whether it was remembered.
    - Not promised: after a ``discard`` or an expiry, a late copy of an ``add`` may add the item again, unanswered; after an
      error, a ``discard`` may still come.
    """

    NOTHING = Entry()

    def _is_seen(self, state: Entry) -> bool:
        return state.until is not None and state.until > self.now

    def at_another_time(self, state: Entry) -> Iterable[Entry]:
        return [state._replace(pending=still) for still in self._pending_later(state)]

    def lasts(self, arguments: Any) -> int:
        ttl = arguments.get("ttl")
        return self.now + 1000 * ttl if ttl else _NEVER

    def add(self, op: Op, _: str, state: Entry, ttl: int | None = None) -> Outcomes:
        seen = self._is_seen(state)
        added = state if seen else state._replace(until=self.lasts({"ttl": ttl}))
        return self._added(op, state, added, is_new=not seen)

    def contains(self, _op: Op, _: str, state: Entry) -> Outcomes:
        return [(self._is_seen(state), state)]

    def discard(self, op: Op, _: str, state: Entry) -> Outcomes:
        seen = self._is_seen(state)
        # The object's own earlier answers are of no interest any more.
        pending = frozenset(each for each in state.pending if each[0] != op.store)
        for left in {pending, state.pending}:
            yield seen, state._replace(until=None, pending=left)

    def echo(self, op: Op) -> None:
        self._begin_copy(op, NOBODY, op.verb)

    def lose(self, op: Op, item: str, state: Entry, answer: Any) -> Entry:
        return state if op.is_copy else super().lose(op, item, state, answer)

    def over(self, op: Op, history: History) -> list[Op]:
        # A late copy of a discard is not known by what came after.
        return [] if op.verb.startswith("discard") else super().over(op, history)
