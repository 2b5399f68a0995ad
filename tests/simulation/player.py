"""Plays schedules: each is a list of moves, and the same list always leads to the same answers.

A *caller* asks a store its questions, one after another, each until it has an answer. What it sends waits *in flight*: the
schedule says which call the server executes next, which reply arrives, which one is lost, and which copy comes late. Nothing
is faked for that: the verbs are generators that yield calls and are sent replies (``tbloom/engine/flow.py``), and a real
server executes the calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis import exceptions

from tbloom.engine.flow import Call, Flow, ScriptCall
from tbloom.engine.retries import Retries
from tbloom.errors import TBloomError
from tests.helpers.flows import flow_of

if TYPE_CHECKING:
    from tests.simulation.server import Server

#: A verb and its arguments.
Question = tuple[str, tuple[Any, ...]]
#: What a caller asks; it is sent the answers.
Program = Generator[Question, Any, None]
#: A move by its name.
Moves = dict[str, Callable[[], object]]
#: Longer schedules hang.
_MOST_MOVES = 600
#: Error replies that change nothing.
REFUSALS: dict[str, Exception] = {
    "LOADING": exceptions.BusyLoadingError("LOADING Redis is loading the dataset in memory"),
    "OOM": exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    "READONLY": exceptions.ReadOnlyError("You can't write against a read only replica."),
    "BUSY": exceptions.ResponseError("BUSY Redis is busy running a script."),
}


class InFlight:
    """Calls that were sent together over one connection. ``take``: gets the replies, or errors, and whether to try again."""

    def __init__(self, world: World, label: str, calls: Sequence[Call], take: Callable[[list[Any], bool], object]) -> None:  # fmt: skip
        self._world, self._label, self._take = world, label, take
        self.calls = calls
        #: The replies to those that the server has executed.
        self.replies: list[Any] = []

    def moves(self) -> Moves:
        """What may happen to them."""
        found: Moves = {}
        left = self.calls[len(self.replies) :]
        if left:
            found[f"{self._label}: a call is executed"] = self._execute
        else:
            found[f"{self._label} gets its replies"] = lambda: self._end(self.replies)
        return found

    def faults(self) -> Moves:
        """What may go wrong with them."""
        found: Moves = {}
        done, left = len(self.replies), self.calls[len(self.replies) :]
        lost = exceptions.ConnectionError("Connection closed by server.")
        for again, then in ((True, "tries again"), (False, "gets an error")):
            replies = [lost] * len(self.calls)
            found[f"{self._label} loses the connection, {then}"] = self._fault(replies, again=again)
            if done and left:
                some = [*self.replies, *[lost] * len(left)]
                text = f"{self._label} loses the connection after {done} replies, {then}"
                found[text] = self._fault(some, again=again)
            if left:
                text = f"{self._label} loses the connection, its calls come late, {then}"
                found[text] = self._fault(replies, again=again, late=left)
            if not done:
                for code, error in self._world.refusals.items():
                    refused = [error] * len(self.calls)
                    text = f"{self._label} is refused: {code}, {then}"
                    found[text] = self._fault(refused, again=again)
        return found

    def late(self) -> None:
        """What was not executed may be executed later."""
        self._world.late += [
            c for c in self.calls[len(self.replies) :] if isinstance(c, ScriptCall)
        ]

    def _execute(self) -> None:
        self.replies.append(self._world.server.execute(self.calls[len(self.replies)]))

    def _fault(self, replies: list[Any], *, again: bool, late: Sequence[Call] = ()) -> Callable[[], object]:  # fmt: skip
        def move() -> None:
            self._world.faults -= 1
            if late:
                self.late()
            self._end(replies, again=again)

        return move

    def _end(self, replies: list[Any], *, again: bool = False) -> None:
        self._take(replies, again)


class Caller:
    """One thread, with a store that it may share with others."""

    def __init__(self, name: str, world: World, store: Any, program: Program, *, is_alone: bool) -> None:  # fmt: skip
        self.name, self.store, self._world, self._program = name, store, world, program
        self.question: Question | None = next(program)
        self.flight: InFlight | None = None
        self._flow: Flow[Any] | None = None
        self._retries: Any = None
        self._tries_again = False
        #: No other caller shares its store.
        self.is_alone = is_alone

    @property
    def is_waiting(self) -> bool:
        """The server has not executed its calls yet."""
        return self.flight is not None and len(self.flight.replies) < len(self.flight.calls)

    def moves(self) -> Moves:
        """What may happen to it."""
        if self.flight:
            return self.flight.moves()
        if self.question:
            return {f"{self.name} asks": self._ask}
        return {}

    def faults(self) -> Moves:
        """What may go wrong with it."""
        if not self.flight:
            return {}
        found = {**self.flight.faults(), f"{self.name} is cancelled": self._cancel}
        if len(self.flight.replies) < len(self.flight.calls):
            found[f"{self.name} is cancelled, its calls come late"] = self._cancel_late
        return found

    def _ask(self) -> None:
        assert self.question
        verb, arguments = self.question
        self._world.account.asks(self, self.question)
        self._flow = flow_of(self.store, verb, *arguments)
        self._go_on(next)

    def _go_on(self, step: Callable[[Flow[Any]], Any]) -> None:
        """As ``SyncDriver.run`` does."""
        assert self._flow
        try:
            calls = step(self._flow)
        except StopIteration as stop:
            self._flow.close()
            self._answered(stop.value)
        except (exceptions.RedisError, TBloomError):  # it asks again
            self._flow.close()
        else:
            self._retries = Retries(calls, lambda: 3600.0 * self._tries_again, resends=False)
            self._send(calls)

    def _send(self, calls: Sequence[Call]) -> None:
        self.flight = InFlight(self._world, self.name, calls, self._take)

    def _take(self, replies: list[Any], again: bool) -> None:
        """As ``SyncDriver._send`` does."""
        self.flight, self._tries_again = None, again
        assert self._flow
        try:
            self._retries.take(replies)
        except exceptions.RedisError:
            self._flow.close()
            return
        if self._retries.pending:
            self._send(self._retries.pending)
        else:
            self._go_on(lambda flow: flow.send(self._retries.replies))

    def _cancel(self) -> None:
        assert self._flow
        self._world.faults -= 1
        self.flight = None
        self._flow.close()

    def _cancel_late(self) -> None:
        assert self.flight
        self.flight.late()
        self._cancel()

    def _answered(self, answer: Any) -> None:
        assert self.question
        question, self.question = self.question, None
        self._world.account.told(self, question, answer)
        with suppress(StopIteration):
            self.question = self._program.send(answer)


class World:
    """The callers of one schedule, what is late, and what else happens, once each."""

    def __init__(self, server: Server, account: Any, faults: int) -> None:
        self.server, self.account, self.faults = server, account, faults
        self.refusals = REFUSALS
        self.callers: list[Any] = []
        self.also: Moves = {}
        self.late: list[ScriptCall] = []
        self.log: list[str] = []

    def moves(self) -> Moves:
        """What may happen next; first what happens where nothing goes wrong.

        What a client does by itself means nothing to others: it comes at once, or all orders of it would be played.
        """
        found: Moves = {}
        for caller in self.callers:
            found |= (moves := caller.moves())
            if moves and caller.is_alone and not caller.is_waiting:
                return {**moves, **caller.faults()} if self.faults else moves
        for number, call in enumerate(self.late):
            found[f"late call {number} is executed"] = lambda call=call: self._execute_late(call)
        for name, act in self.also.items():
            found[name] = lambda name=name, act=act: (self.also.pop(name), act())
        if self.faults:
            for caller in self.callers:
                found |= caller.faults()
        return found

    def play(self, choose: Callable[[Sequence[str]], str]) -> None:
        """Plays to the end. Raises AssertionError where the account does not hold."""
        for _ in range(_MOST_MOVES):
            moves = self.moves()
            if not moves:
                return
            name = choose([*moves])
            self.log.append(name)
            moves[name]()
            self.account.check()
        raise AssertionError("it has no end")

    def _execute_late(self, call: ScriptCall) -> None:
        self.late.remove(call)
        self.server.execute(call)


def run(server: Server, flow: Flow[Any]) -> Any:
    """A flow's answer, where nothing goes wrong."""
    replies: Any = None
    try:
        for _ in itertools.count():
            calls = flow.send(replies)
            retries = Retries(calls, lambda: 0.0, resends=False)
            while retries.pending:
                retries.take([server.execute(call) for call in retries.pending])
            replies = retries.replies
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()
