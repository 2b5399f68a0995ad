"""What is promised, as small models that do one thing after another.

A model says what each verb answers, given what is remembered of one item, and what is remembered then. The promises follow from
``histories``: what callers are answered must be what the model may answer, whatever became of their calls. So of all that
add an item, one is answered "new"; who got an error gets that answer when asking again; a late copy changes nothing; a claim has
one holder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tbloom import Claim
from tests.simulation.histories import GONE, MUST_HAPPEN, History, Op
from tests.simulation.server import START_MS, Clock

#: A pending answer "new" of an object: the object; calls that begin from this move on must get it; until when (ms).
Pending = frozenset[tuple[int, int, int]]
Outcomes = Iterable[tuple[Any, Any]]
_NEVER = 1 << 60
#: The verbs whose methods have other names.
_METHODS = {"import": "import_", "_send_heartbeat": "send_heartbeat"}
#: In place of an object's number.
NOBODY = -1
#: In place of an item: whether ``take`` has said that all work is done.
IS_OVER = "is over"


class Account:
    """Hears of all calls and answers of a schedule. ``clear`` forgets all items; a subclass has the verbs of a store."""

    #: What is remembered of an item at first.
    NOTHING: Any
    #: Until when an answer "new" of a moment is pending (ms, by the server's clock), with these arguments of the call.
    lasts: Callable[[int, Any], int]
    #: What may be remembered of a state at another time.
    at_another_time: Callable[[Any], Iterable[Any]]

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        self.clock = clock
        #: Moves that were played; calls are ordered by it.
        self.moves = 0
        self.histories = {
            item: History(item, self.NOTHING, self.apply, self.lose) for item in items
        }
        #: Objects whose sessions are dead, with their processes; those of which the server may yet get calls.
        self.dead, self.heard_late = set[int](), set[int]()
        self._calls = 0

    @property
    def now(self) -> int:
        """The server's clock (ms)."""
        return START_MS + self.clock.server_ms

    # What callers do

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Op:
        """A caller asks; ``arguments``: by item."""
        self._calls += 1
        op = Op(self._calls, store, verb, arguments, self.moves, self.now)
        for history in self._of(op):
            for other in history.open.values():
                op.is_cleared |= other.verb == "clear"
                other.is_cleared |= verb == "clear"
                if other.store == store and other.failed is None:
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
                new = saved._replace(pending=pending, saved=state.saved)
                # A call without an answer is sent again, and may meet a server that has never had it.
                for kept in subsets(done):
                    yield new, kept

        for history in self.histories.values():
            history.change_cases(restarted)

    # The model

    def apply(self, op: Op, item: str, state: Any) -> Outcomes:
        """What the call answers for an item, and what is remembered then."""
        verb: Callable[..., Outcomes] = getattr(self, _METHODS.get(kind_of(op), kind_of(op)))
        return verb(op, item, state, **op.arguments[item])

    def lose(self, op: Op, item: str, state: Any, answer: Any) -> Any:
        """What is remembered once a call has taken effect, and its caller has got an error."""
        if kind_of(op) == "add" and answer is True:
            # It may have taken effect as soon as it began.
            until = self.lasts(min(op.at, self.now), op.arguments[item])
            since = _NEVER if op.is_cleared else op.failed
            return state._replace(pending=state.pending | {(op.store, since, until)})
        return state

    def _added(self, op: Op, state: Any, added: Any, *, is_new: bool) -> Outcomes:
        """What an ``add`` answers, and what is remembered then: ``added``, but for the pending answers."""
        due = [each for each in state.pending if each[0] == op.store]
        if due:
            yield True, added._replace(pending=state.pending - {*due})
        # Who began before the error came may have an answer of the call's own.
        if all(failed >= op.begun for _, failed, _ in due):
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

    def lasts(self, since: int, arguments: Any) -> int:
        ttl = arguments.get("ttl")
        return since + 1000 * ttl if ttl else _NEVER

    def add(self, op: Op, _: str, state: Entry, ttl: int | None = None) -> Outcomes:
        seen = self._is_seen(state)
        added = state if seen else state._replace(until=self.lasts(self.now, {"ttl": ttl}))
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
        if op.verb != "clear":  # a late one forgets nothing that was added since
            self._calls += 1
            copy = Op(
                self._calls, NOBODY, op.verb, op.arguments, self.moves, self.now, is_copy=True
            )
            copy.failed = self.moves
            for history in self._of(op):
                history.begin(copy)

    def lose(self, op: Op, item: str, state: Entry, answer: Any) -> Entry:
        return state if op.is_copy else super().lose(op, item, state, answer)

    def over(self, op: Op, history: History) -> list[Op]:
        # A late copy of a discard is not known by what came after.
        return [] if op.verb.startswith("discard") else super().over(op, history)


#: The length of a slice (ms), and how many there are.
LENGTH, SLICES = 60_000, 4
#: Of how many deaths an item is taken only by a session that has nothing else to do.
SUSPECT = 2


def taken_after(deaths: int) -> str:
    """The answer of ``take`` for an item that it takes."""
    return f"taken after {deaths} deaths"


class Window(NamedTuple):
    """What a filter with a window remembers of an item."""

    #: The slices that hold it, by their numbers since the epoch.
    slices: frozenset[int] = frozenset()
    #: Slices that have left, and would be there again if the clock were set back.
    left: frozenset[int] = frozenset()
    pending: Pending = frozenset()
    #: Who works on the item: the object whose session has claimed it, or ``_former`` of an object whose session has changed
    #: since; NOBODY if the item is left. Since when its caller does not know of the claim; if it has a note, how many deaths that
    #: says, and whether the last session has died since; the number of the call that has claimed it, or 0.
    holder: tuple[int, int | None, tuple[int, bool] | None, int] | None = None
    saved: Any = None


class WindowAccount(Account):
    """The promises of a filter with a window.

    - An item is new if none of the slices that are asked holds it. It is remembered from then on, in the current slice, or with
      ``keep`` in that which leaves after so many slices. Who got an error is answered "new" when asking again.
    - An item that was answered "new", or committed, is contained until its slice has left.
    - Of the sessions that claim an item or take it, one gets it, until it commits or releases the item, leaves it, ends or dies.
      The item is SEEN once it is committed. A claim whose caller got an error is NEW when asking again, or ends with the next
      heartbeat.
    - An item with a note is left when its session leaves it, ends or dies, and when it is pushed, which it can be unless it is
      seen, claimed or left. Nothing is taken only if nothing is left; but the claims of a session that has died since sessions
      were counted are not left yet. A commit ends a left item; what another session has claimed is not left after it.
    - All work is done only if no other session that takes items is at work.
    - Not promised: who works on an item, once the server has come back with less than it had. Any session may be lost then.
    """

    NOTHING = Window()

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        super().__init__(clock, items)
        #: By object: the move when it began to end its last session, and that when it was answered or got an error.
        self.changed: dict[int, int] = {}
        #: Whether the server has come back with what it had saved.
        self.has_restarted = False
        #: Since which move the sessions are at work that take items, by object.
        self.at_work: dict[int, int] = {}
        #: Objects that have named a queue, and whose sessions are the same since.
        self.takers = set[int]()
        #: Commits that have failed. A heartbeat may be about to repeat one though its caller has asked again.
        self.failed_commits: list[Op] = []

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
                if self.current - op.at // LENGTH >= self._periods(op, history.item)
            }
            if over:
                history.change_cases(partial(_made_anew, over))

    def _periods(self, op: Op, item: str) -> int:
        """After how many slices a call without an answer is made anew. (The server keeps no answer of an import, so that may be
        executed in each of two slices. Of claims and pushes alone, the answer leaves with the slices that were there.)"""
        return (
            1
            if kind_of(op) in {"import", "push", "claim"}
            else op.arguments[item].get("keep") or SLICES
        )

    def at_another_time(self, state: Window) -> Iterable[Window]:
        live = {s for s in state.slices if s + SLICES > self.current}
        left = state.left | (state.slices - live)
        back = [s for s in left if s + SLICES > self.current]
        for there in [live] if not back else [live, live | {*back}]:
            for still in self._pending_later(state):
                yield state._replace(slices=frozenset(there), left=left - {*back}, pending=still)

    def apply(self, op: Op, item: str, state: Window) -> Outcomes:
        for each in self._buried(op, item, state):
            yield from super().apply(op, item, each)

    def lasts(self, since: int, arguments: Any) -> int:
        return (since // LENGTH + (arguments.get("keep") or SLICES)) * LENGTH

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
        """Its claims are left, or will be if the call has failed before; another session begins."""
        yield None, self._left(op.store, state)
        if op.failed is not None:
            yield None, self._of_former_session(op.store, state)

    def claim(self, op: Op, item: str, state: Window, deaths: int | None = None) -> Outcomes:
        if self.is_seen(state):
            yield Claim.SEEN, state
        else:
            may_have, may_not = self._may_have(op, item, state)
            if may_have:
                note = None if deaths is None else (deaths, False)
                yield Claim.NEW, state._replace(holder=(op.store, None, note, op.number))
            if may_not:
                yield Claim.BUSY, state
        if op.beside & {"claim", "claim_many", "commit", "take"} or self.has_restarted:
            # By another thread's call, whatever that will be answered, or by its work.
            yield Claim.BUSY, state

    def note_history(self, op: Op, _: str, state: Window, deaths: int) -> Outcomes:
        """A claim of the session says so many deaths then, if it has a note and the session knows of it."""
        owner, given_up, note, call = state.holder or (NOBODY, None, None, 0)
        if owner == op.store and note is not None:
            yield None, state._replace(holder=(owner, given_up, (deaths, False), call))
        if owner != op.store or note is None or given_up is not None:
            yield None, state

    def _may_have(self, op: Op, item: str, state: Window) -> tuple[bool, bool]:
        """Whether the object may get the claim, and whether it may not."""
        owner, given_up, note, _ = state.holder or (NOBODY, None, None, 0)
        if owner == NOBODY or self._is_dead(owner):
            # Where a session has died of it, only who takes left items gets it.
            has_died = note is not None and (any(note) or owner != NOBODY)
            return (
                True,
                has_died or owner in self.heard_late or self.has_restarted or owner < NOBODY,
            )
        if given_up is None:
            return False, True
        if owner == op.store and not op.verb.startswith("push"):
            return True, given_up >= op.begun
        # Its next heartbeat or release ends the claim.
        calls = self.histories[item].open.values()
        ends = ("_send_heartbeat", "release", "leave_many", "take")
        return any(c.store == owner and c.verb in ends for c in calls), True

    def commit(self, op: Op, _: str, state: Window, keep: int | None = None) -> Outcomes:
        """False: another session works on the item, or has committed it. (Who repeats a commit is not told the latter, and who
        has not claimed the item neither.)"""
        chosen = self.current - SLICES + (keep or SLICES)
        owner = NOBODY if state.holder is None else state.holder[0]
        if self.has_restarted:
            answers = [True, False]
        elif owner not in {op.store, NOBODY}:
            answers = [False]
        elif owner == NOBODY and any(chosen <= s <= self.current for s in state.slices):
            answers = [True, False]
        else:
            answers = [True]
        if not any(chosen <= s <= self.current for s in state.slices):
            state = self._with(state, keep)
        if state.holder is not None and owner not in {op.store, NOBODY}:
            # Nobody takes it after its owner.
            after = state._replace(holder=(owner, state.holder[1], None, state.holder[3]))
        else:
            after = state._replace(holder=None)
        return [(answer, after) for answer in answers]

    def release(self, op: Op, _: str, state: Window) -> Outcomes:
        """What repeats a release leaves the item."""
        is_own = state.holder is not None and state.holder[0] == op.store
        yield from self._ended(state, state._replace(holder=None) if is_own else state)
        if op.failed is not None or op.beside & {"_send_heartbeat", "take", "end_session"}:
            yield None, self._left(op.store, state)

    def leave(self, op: Op, _: str, state: Window) -> Outcomes:
        return self._ended(state, self._left(op.store, state))

    def _ended(self, state: Window, ended: Window) -> Outcomes:
        """The claim ends, unless the server has come back with it and its session knows nothing of it."""
        return [(None, each) for each in {ended, *[state] * self.has_restarted}]

    def send_heartbeat(self, op: Op, item: str, state: Window) -> Outcomes:
        ended = state
        if state.holder is not None and state.holder[1] is not None:
            ended = self._left(op.store, state)
        for _, left in self._ended(state, ended):
            yield None, left
            for commit in self.failed_commits:
                if commit.store == op.store and item in commit.arguments:
                    for _, committed in self.commit(commit, item, left, **commit.arguments[item]):
                        yield None, committed

    def take(
        self,
        op: Op,
        _: str,
        state: Window,
        idle: bool = True,
        sure: bool = False,  # noqa: ARG002
    ) -> Outcomes:
        """It is taken, with the number of deaths; False: nothing is left; None: others are taken."""
        is_own = state.holder is not None and state.holder[0] == op.store
        if is_own and state.holder[1] is not None:
            # First it leaves what its session has claimed without an answer. Another session may take that before it does.
            for _, left in self._ended(state, self._left(op.store, state)):
                yield from [*self._taken(op, left, idle=idle), (False, left), (None, left)]
        else:
            is_left = [*self._taken(op, state, idle=idle)]
            yield from is_left or [(False, state)]
        yield None, state

    def _taken(self, op: Op, state: Window, *, idle: bool) -> Outcomes:
        if state.holder is None or state.holder[0] != NOBODY or state.holder[2] is None:
            return
        deaths, has_died = state.holder[2]
        known = deaths + has_died
        if idle or known < SUSPECT:
            note = (deaths if known < SUSPECT else known, False)
            taken = (op.store, None, note, op.number)
            yield taken_after(known), state._replace(holder=taken)

    def push(self, op: Op, item: str, state: Window, deaths: int = 0) -> Outcomes:
        is_left = state.holder is not None and state.holder[0] == NOBODY
        may_have, may_not = self._may_have(op, item, state)
        if may_have and not is_left and not self.is_seen(state):
            yield True, state._replace(holder=(NOBODY, None, (deaths, False), 0))
        if may_not or is_left or self.is_seen(state):
            yield False, state

    def _is_dead(self, owner: int) -> bool:
        """Whether the session is dead, or may be."""
        return owner in self.dead or owner < NOBODY or (self.has_restarted and owner > NOBODY)

    def _buried(self, op: Op, item: str, state: Window) -> Iterable[Window]:
        """What may be remembered once somebody has buried dead sessions, or nobody has."""
        if state.holder is None or not self._is_dead(owner := state.holder[0]):
            return [state]
        left = [self._left(owner, state, dies=True)]
        if owner < NOBODY or self.has_restarted:  # it may have ended before it could die
            left.append(self._left(owner, state))
        is_surely = owner in self.dead or owner < NOBODY
        return left if is_surely and op.arguments[item].get("sure") else [state, *left]

    def _left(self, owner: int, state: Window, *, dies: bool = False) -> Window:
        """What is remembered once the claim of this owner has ended, and the item is left if it has a note."""
        if state.holder is None or state.holder[0] != owner:
            return state
        note = state.holder[2]
        return state._replace(holder=(NOBODY, None, (note[0], dies), 0) if note else None)

    def _of_former_session(self, store: int, state: Window) -> Window:
        if state.holder is None or state.holder[0] != store:
            return state
        return state._replace(holder=(_former(store), *state.holder[1:]))

    def lose(self, op: Op, item: str, state: Window, answer: Any) -> Window:
        state = super().lose(op, item, state, answer)
        is_claim = answer is Claim.NEW or (op.verb == "take" and answer)
        if is_claim and state.holder and state.holder[:2] == (op.store, None):
            is_former = op.begun < self.changed.get(op.store, 0)
            owner = _former(op.store) if is_former else op.store
            return state._replace(holder=(owner, op.failed, state.holder[2], 0))
        return state

    def nothing_is_asked(self) -> None:
        """Nobody asks any more, and no request is late: no failed call of a dead process takes effect."""
        for history in self.histories.values():
            history.look_ahead()
            history.settle([op for op in history.open.values() if op.store in self.dead])

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Op:
        if verb in {"take", "end_session"}:
            self.at_work.pop(store, None)
        if verb == "clear":
            self.at_work.clear()
            self.takers.clear()
        return super().begins(store, verb, arguments)

    def restarts(self) -> None:
        super().restarts()
        self.has_restarted = True
        self.at_work.clear()
        self.takers.clear()

    def failed(self, op: Op) -> None:
        super().failed(op)
        if op.verb == "end_session":
            self._session_changes(op)
            for history in self._of(op):
                history.change(partial(self._left_or_not, op.store))
        elif op.verb == "commit":
            self.failed_commits.append(op)

    def _left_or_not(self, store: int, state: Window) -> Iterable[Window]:
        return {self._of_former_session(store, state), self._left(store, state)}

    def _session_changes(self, op: Op) -> None:
        self.changed[op.store] = self.moves
        self.takers.discard(op.store)
        self.at_work.pop(op.store, None)

    def answered(self, op: Op, answers: dict[str, Any]) -> None:
        for history in self._of(op):
            answer = answers.get(history.item)
            if answer is Claim.SEEN or (op.verb == "take" and not answer):
                history.change_cases(partial(self._found_committed, op, answer))
        super().answered(op, answers)
        if op.verb == "end_session":
            self._session_changes(op)
        elif op.verb == "take":
            self._is_over(op, is_over=answers[IS_OVER])
            self.takers.add(op.store)
            if not op.beside and any(answers[item] for item in op.arguments):
                self.at_work[op.store] = self.moves
        elif op.verb == "claim" and op.store in self.takers and Claim.NEW in answers.values():
            if not op.beside:
                self.at_work[op.store] = self.moves
        elif op.verb == "_send_heartbeat":
            # It has repeated what had failed before, and nothing of that comes any more.
            for history in self.histories.values():
                failed = [
                    other
                    for other in history.open.values()
                    if other.store == op.store
                    and other.failed is not None
                    and other.failed <= op.begun
                ]
                history.settle([e for e in failed if e.verb.startswith(("claim", "take"))])
                history.settle([e for e in failed if e.verb.startswith(MUST_HAPPEN)], happened=True)

    def _is_over(self, op: Op, *, is_over: bool) -> None:
        """No session that takes items was at work during the whole call, and its own has nothing else to do."""
        others = [
            store
            for store, since in self.at_work.items()
            if since <= op.begun and store != op.store and store not in self.dead
        ]
        assert not (is_over and not all(how["idle"] for how in op.arguments.values())), (
            f"all is over for {op.store}, which is at work"
        )
        assert not (is_over and others), f"all is over for {op.store}, and {others} are at work"

    def _found_committed(
        self, op: Op, answer: Any, case: tuple[Any, Any]
    ) -> Iterable[tuple[Any, Any]]:
        """Its first request has claimed the item, another session has committed it, and the next request has found that."""
        state, done = case
        yield case
        for number, given in done:
            if (
                number == op.number
                and (given is Claim.NEW or isinstance(given, str))
                and self.is_seen(state)
            ):
                new = done - {(number, given)} | {(number, answer)}
                yield self._left(op.store, state), new


def _former(store: int) -> int:
    """In place of an object's number: an earlier session of it, which may be alive, or dead, or buried."""
    return NOBODY - 1 - store


def _made_anew(over: set[int], case: tuple[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Calls without an answer that the server has forgotten since: of an add, with the items that have left."""
    state, done = case
    forgotten = {each for each in done if each[0] in over and each[1] != GONE}
    return [(state, done - some) for some in subsets(frozenset(forgotten))]
