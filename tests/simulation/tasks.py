"""Tasks of asyncio whose network is played: the driver for asyncio is as it is, and what it sends waits in flight.

The tasks of one object share calls (``tbloom/engine/together.py``), so what is in flight belongs to the object, not to a task.
A cancelled task asks again, as a caller does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

from redis import exceptions

from tbloom.engine import aio
from tbloom.engine.flow import Call
from tbloom.errors import TBloomError
from tests.simulation.player import InFlight, Moves, Program, Question, World

if TYPE_CHECKING:
    from tests.simulation.server import Server

#: So many turns of the event loop, and all tasks wait for the network.
_TURNS = 12


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)


class Network:
    """The connections of one object, in place of redis-py's."""

    keeps = False

    def __init__(self, world: TaskWorld, store: Any, label: str) -> None:
        self._world, self._store, self._label = world, store, label
        self.in_flight: list[InFlight] = []
        self._sent = 0

    async def send(self, calls: Sequence[Call]) -> list[Any]:
        """The replies, or redis-py's errors, once the schedule says so."""
        arrived: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def take(replies: list[Any], again: bool) -> None:
            self._store._retry_for = 3600.0 * again
            arrived.set_result(replies)

        self._sent += 1
        flight = InFlight(self._world, f"{self._label}'s send {self._sent}", calls, take)
        self.in_flight.append(flight)
        try:
            return await arrived
        finally:
            self.in_flight.remove(flight)

    async def renew(self) -> None:
        """A server is no master any more: the next connection is another one."""


class TaskCaller:
    """One task after another, which ask the questions of a program."""

    is_alone = False

    def __init__(self, name: str, world: TaskWorld, store: Any, program: Program) -> None:
        self.name, self.store, self._world, self._program = name, store, world, program
        self.question: Question | None = next(program)
        self._task: asyncio.Task[None] | None = None

    def moves(self) -> Moves:
        """What may happen to it."""
        return {f"{self.name} asks": self._ask} if self.question and not self._task else {}

    def faults(self) -> Moves:
        """What may go wrong with it."""
        return {f"{self.name} is cancelled": self._cancel} if self._task else {}

    def _ask(self) -> None:
        assert self.question
        self._world.account.asks(self, self.question)
        self._task = self._world.loop.create_task(self._answer(self.question))
        self._task.add_done_callback(self._world.note_end)

    async def _answer(self, question: Question) -> None:
        verb, arguments = question
        try:
            answer = await getattr(self.store, verb)(*arguments)
        except (asyncio.CancelledError, exceptions.RedisError, TBloomError):
            self._task = None  # it asks again
            return
        self._task, self.question = None, None
        self._world.account.told(self, question, answer)
        with suppress(StopIteration):
            self.question = self._program.send(answer)

    def _cancel(self) -> None:
        assert self._task
        self._world.faults -= 1
        self._task.cancel()


class TaskWorld(World):
    """The tasks of one schedule, on an event loop that stands still between two moves."""

    def __init__(self, server: Server, account: Any, faults: int) -> None:
        super().__init__(server, account, faults)
        self.loop = asyncio.new_event_loop()
        self.networks: list[Network] = []
        self._error: BaseException | None = None

    def join(self, stores: Sequence[Any]) -> None:
        """Gives the objects their networks."""
        for number, store in enumerate(stores, 1):
            store._connections = network = Network(self, store, f"store {number}")
            self.networks.append(network)

    def moves(self) -> Moves:
        found: Moves = {}
        flights = [flight for network in self.networks for flight in network.in_flight]
        for flight in flights:
            found |= flight.moves()
        found |= super().moves()
        if self.faults:
            for flight in flights:
                found |= flight.faults()
        return {name: self._in_loop(move) for name, move in found.items()}

    def play(self, choose: Callable[[Sequence[str]], str]) -> None:
        """See ``World.play``."""
        pause = mock.patch.object(aio, "sleep", _no_pause)  # of retries
        try:
            with pause:
                super().play(choose)
        finally:
            self._error = None
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self._settle()
            self.loop.close()

    def note_end(self, task: asyncio.Task[None]) -> None:
        """Where a task ends by an error, as of an account, the schedule fails with it."""
        if not task.cancelled():
            self._error = self._error or task.exception()

    def _in_loop(self, move: Callable[[], object]) -> Callable[[], object]:
        def moved() -> None:
            move()
            self._settle()

        return moved

    def _settle(self) -> None:
        async def turns() -> None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        if self._error is not None:
            raise self._error
