"""Who asks: a caller is a thread or a task, which asks one question after another of an object of the library."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import redis

from tbloom.errors import TBloomError
from tests.simulation.histories import Op
from tests.simulation.player import Abandoned, Worker

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The name of the caller whose task, or task's task, this is.
asking = contextvars.ContextVar("asking", default="")


class Question(NamedTuple):
    """A verb, its arguments by item, and how it is called."""

    verb: str
    arguments: dict[str, Any]
    call: Callable[[Any], Any]
    #: The answers by item, from what the verb returned.
    read: Callable[[Any], dict[str, Any]]


#: Questions that follow from the answers, which it is sent.
Program = Generator[Question, Any, None]
#: What a caller asks.
Part = Question | Callable[[], Program]


def _asking(parts: Iterable[Part]) -> Program:
    """Asks one after another."""
    for part in parts:
        if isinstance(part, Question):
            yield part
        else:
            yield from part()


class Caller:
    """A thread, or a task, that asks one question after another of an object, each until it has its answer."""

    def __init__(self, world: World, name: str, store: int, parts: Iterable[Part]) -> None:
        self.name, self.store, self._world, self._program = name, store, world, _asking(parts)
        self.question: Question | None = next(self._program, None)
        self.op: Op | None = None
        self.has_failed = self.is_gone = False
        #: What it got: ("answer", ...) or ("error", ...).
        self.outcome: tuple[str, Any] | None = None
        self.worker: Worker | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is in a call."""
        return self.op is not None

    def ask(self) -> None:
        """Begins, or begins anew."""
        assert self.question is not None
        self.has_failed = False
        self.op = self._world.account.begins(
            self.store, self.question.verb, self.question.arguments
        )
        store, call = self._world.stores[self.store], self.question.call
        if self._world.loop is not None:
            context = contextvars.copy_context()
            context.run(asking.set, self.name)
            self.task = context.run(self._world.loop.create_task, self._await(call, store))
        else:
            self.worker = self._world.player.worker()
            self._world.callers_of[id(self.worker)] = self
            self.worker.begin(lambda: self._run(call, store))

    def _run(self, call: Callable[[Any], Any], store: Any) -> None:
        try:
            self.outcome = "answer", call(store)
        except BaseException as error:  # noqa: BLE001 - a signal's, too
            self.outcome = "error", error

    async def _await(self, call: Callable[[Any], Any], store: Any) -> None:
        try:
            self.outcome = "answer", await call(store)
        except BaseException as error:  # noqa: BLE001 - a cancellation
            self.outcome = "error", error

    def conclude(self) -> None:
        """Tells the account of an outcome, and goes on."""
        assert self.question is not None
        assert self.op is not None
        assert self.outcome is not None
        (kind, what), op, self.outcome, self.op = self.outcome, self.op, None, None
        if self.worker is not None:
            self._world.player.workers.append(self.worker)
            self.worker = None
        account = self._world.account
        if kind == "answer":
            account.answered(op, self.question.read(what))
            self._next(what)
        elif isinstance(what, TBloomError) and not isinstance(what, self._world.may_refuse):
            raise what
        elif isinstance(what, TBloomError) and len(op.arguments) == 1:
            account.refused(op)
            self._next(what)
        elif isinstance(what, redis.RedisError | KeyboardInterrupt | asyncio.CancelledError):
            account.failed(op)
            self.has_failed = True
        elif isinstance(what, TBloomError):
            account.failed(op)
            self._next(what)
        elif not isinstance(what, Abandoned):
            raise what

    def go_on(self) -> None:
        """Does not ask again."""
        self.has_failed = False
        self._next(None)

    def _next(self, answer: Any) -> None:
        try:
            self.question = self._program.send(answer)
        except StopIteration:
            self.question = None
