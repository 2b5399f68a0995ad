"""Could it have been so? What callers were answered, compared with a model that does one thing after another.

A history is one item's: each call takes effect at one moment between its beginning and its end (it is *linearizable*; M. Herlihy
and J. Wing, 1990), and the model in ``accounts`` says what it answers then. A history knows all that may be the case: states of
the model, each with the calls that have taken effect in it and are not answered yet. An answer leaves those in which it is
possible. Where none is left, a promise is broken.

A call that ended in an error may have taken effect, or may yet (a late copy), until something says that it can't any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: In place of an answer: the call has taken effect, and its caller has got an error.
GONE = "gone"
#: Verbs that a heartbeat repeats once they have failed.
MUST_HAPPEN = ("commit", "release", "leave")
_MOST = 5_000


class Undecided(Exception):
    """So many calls have failed that nearly anything may be the case: the schedule is not judged."""


@dataclass(eq=False)
class Op:
    """One call of a verb; ``store``: the number of the object that was called."""

    number: int
    store: int
    verb: str
    #: By item; an item that is not named is not touched.
    arguments: dict[str, Any]
    #: When it began, as the number of a move and by the server's clock (ms); and the move when its caller got an error.
    begun: int
    at: int
    failed: int | None = None
    #: Other calls of the same object that were open at once.
    beside: set[str] = field(default_factory=set)
    #: All was forgotten during the call, perhaps: what it had been answered before is not pending any more.
    is_cleared: bool = False
    #: It is a late copy, for which nobody waits.
    is_copy: bool = False

    def __str__(self) -> str:
        return f"{self.verb} of store {self.store}"


#: A state of the model, and the calls that have taken effect and are not answered: by number, what they will answer.
Case = tuple[Any, frozenset[tuple[int, Any]]]
Apply = Callable[[Op, str, Any], Iterable[tuple[Any, Any]]]
Lose = Callable[[Op, str, Any, Any], Any]


class History:
    """What may be the case with one item. ``apply``: the answers and states to which a call may lead from a state."""

    def __init__(self, item: str, state: Any, apply: Apply, lose: Lose) -> None:
        self.item, self._apply, self._lose = item, apply, lose
        self.cases: set[Case] = {(state, frozenset())}
        #: Calls that may yet take effect.
        self.open: dict[int, Op] = {}

    @property
    def states(self) -> set[Any]:
        """The states that are possible now."""
        return {state for state, _ in self._reached()}

    def begin(self, op: Op) -> None:
        """A call begins."""
        self.open[op.number] = op

    def answered(self, op: Op, answer: Any) -> None:
        """A call has its answer. Raises AssertionError where it can't be."""
        others, found = set(), set()
        for state, done in self._reached(until=op.number):
            for number, given in done:
                if number == op.number:
                    others.add(given)
                    left = done - {(number, given)}
                    if given == answer:
                        found.add((state, left))
                    if op.is_cleared:  # it may have been made anew after that
                        again = self._outcomes(op, state)
                        found |= {(new, left) for said, new in again if said == answer}
        del self.open[op.number]
        expected = " or ".join(sorted(map(str, others)))
        assert found, f"{self.item!r}: {op} answers {answer}, not {expected}"
        self.cases = found

    def failed(self, op: Op) -> None:
        """Its caller has got an error: it may have taken effect, or may yet."""
        self.cases = {
            next(
                (
                    (self._lose(op, self.item, state, given), done - {(n, given)} | {(n, GONE)})
                    for n, given in done
                    if n == op.number
                ),
                (state, done),
            )
            for state, done in self.cases
        }

    def settle(self, ops: Iterable[Op], *, happened: bool = False) -> None:
        """Failed calls take no effect any more; ``happened``: they have."""
        for op in ops:
            if op.number not in self.open:
                continue
            gone = (op.number, GONE)
            if happened:
                reached = self._reached(until=op.number)
                self.cases = {case for case in reached if gone in case[1]}
            self.cases = {(state, done - {gone}) for state, done in self.cases}
            del self.open[op.number]

    def look_ahead(self) -> None:
        """What can take effect may do so now, before the time changes."""
        self.cases = {*self._reached()}

    def change(self, to: Callable[[Any], Iterable[Any]]) -> None:
        """Something happens to the server, or to the time."""
        self.change_cases(lambda case: [(new, case[1]) for new in to(case[0])])

    def change_cases(self, to: Callable[[Case], Iterable[Case]]) -> None:
        """The same, where it matters which calls are not answered yet."""
        # What could take effect may have done so before this.
        self.cases = {new for case in [*self._reached()] for new in to(case)}

    def _reached(self, until: int | None = None) -> Iterator[Case]:
        """All cases that open calls lead to; with ``until``, none beyond one in which that call has taken effect."""
        seen, stack = set(self.cases), [*self.cases]
        outcomes: dict[tuple[int, Any], list[tuple[Any, Any]]] = {}
        ends = until is not None and not self.open[until].is_cleared
        while stack:
            state, done = case = stack.pop()
            yield case
            numbers = {number for number, _ in done}
            if ends and until in numbers:
                continue
            for op in self.open.values():
                if op.number in numbers:
                    continue
                key = op.number, state
                if key not in outcomes:
                    outcomes[key] = [*self._outcomes(op, state)]
                for answer, new in outcomes[key]:
                    reached = new, done | {(op.number, answer)}
                    if reached not in seen:
                        seen.add(reached)
                        stack.append(reached)
            if len(seen) > _MOST:
                raise Undecided

    def _outcomes(self, op: Op, state: Any) -> Iterator[tuple[Any, Any]]:
        if op.failed is None:
            yield from self._apply(op, self.item, state)
            return
        for answer, given in self._apply(op, self.item, state):
            new = self._lose(op, self.item, given, answer)
            # What a failed call leaves as it is may also be had without it, unless it must have happened (``settle``).
            if new != state or op.verb.startswith(MUST_HAPPEN):
                yield GONE, new
