"""The network between the library and the server: what a client sends waits here, until the player decides what becomes of it.

The library is not changed: it calls its redis-py clients by their public methods, and these lead here. So drivers, retries and
asyncio's batcher are played as they are. (What redis-py does with its connections: tests/engine.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import redis
from greenlet import greenlet
from redis import asyncio as aio

from tests.simulation.server import Server

LOST = redis.ConnectionError("Connection closed by server.")
Words = tuple[Any, ...]


class Request:
    """A command, and its reply once the server has executed it."""

    __slots__ = ("is_executed", "reply", "words")

    def __init__(self, words: Words) -> None:
        self.words, self.is_executed = words, False
        self.reply: Any = None


class Link:
    """Requests that were sent together over one connection, and who waits for the replies."""

    def __init__(self, name: str, commands: Sequence[Words]) -> None:
        self.name = name
        #: Those that are not answered yet.
        self.requests = deque(map(Request, commands))
        self.replies: list[Any] = []
        #: What the reader gets in place of the replies.
        self.error: BaseException | None = None
        #: The thread that waits, or what continues a task.
        self.thread: greenlet | None = None
        self.future: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether who waits can go on."""
        return self.error is not None or not self.requests


class Network:
    """All requests on their way in one schedule. ``park`` waits for the player's move; ``user``: who sends, for the names of moves."""

    def __init__(self, park: Callable[[Link], None], user: Callable[[], str]) -> None:
        self._park, self._user = park, user
        #: The connections whose readers wait.
        self.waiting: list[Link] = []
        #: Requests of broken connections that the server may still get.
        self.late: list[Request] = []
        #: What becomes of the requests of a connection that breaks now: "lost" or "late".
        self.fate = "lost"

    def send(self, commands: Sequence[Words]) -> list[Any]:
        """The replies; a thread waits for them."""
        link = self._opened(commands)
        try:
            while not link.has_ended:
                self._park(link)
        finally:
            self._close(link)
        return _outcome(link)

    async def send_later(self, commands: Sequence[Words]) -> list[Any]:
        """The same; a task waits."""
        link = self._opened(commands)
        link.future = asyncio.get_running_loop().create_future()
        try:
            await link.future
        finally:
            self._close(link)
        return _outcome(link)

    def _opened(self, commands: Sequence[Words]) -> Link:
        link = Link(self._user(), commands)
        self.waiting.append(link)
        return link

    def _close(self, link: Link) -> None:
        """What the server has not executed yet has the fate that the player chose; what is no script only reads."""
        self.waiting.remove(link)
        if self.fate == "late":
            self.late += [r for r in link.requests if not r.is_executed and "EVAL" in r.words[0]]


def _outcome(link: Link) -> list[Any]:
    if link.error is not None:
        raise link.error
    return link.replies


def _reply(replies: list[Any]) -> Any:
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies[0]


class _Pipeline:
    """Commands that go together."""

    def __init__(self, send: Callable[[Sequence[Words]], Any]) -> None:
        self._send, self._commands = send, list[Words]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def execute_command(self, *words: Any, **_: Any) -> None:
        self._commands.append(words)

    def execute(self, *, raise_on_error: bool) -> Any:
        assert not raise_on_error
        return self._send(self._commands)


class Player:
    """What is kept from schedule to schedule: the server and clients."""

    def __init__(self, server: Server) -> None:
        self.server = server
        #: Of the present schedule.
        self.network: Network
        self.clients: dict[tuple[str, int], Any] = {}
        self.loop = asyncio.new_event_loop()
        #: How many schedules were not judged, because too much was possible in them.
        self.undecided = 0

    def client_of(self, number: int, *, is_async: bool) -> Any:
        """The client of the object with this number, which is kept from schedule to schedule."""
        key = ("async" if is_async else "sync", number)
        if key not in self.clients:
            self.clients[key] = (AsyncPlayedClient if is_async else PlayedClient)(self)
        return self.clients[key]


class Abandoned(BaseException):
    """The schedule has ended, or a process: what still waits is unwound."""


class PlayedClient(redis.Redis):
    """A client for threads, whose commands go to the network of the present schedule."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self._player = player

    def execute_command(self, *words: Any, **_: Any) -> Any:
        return _reply(self._player.network.send([words]))

    def pipeline(self, transaction: bool = False, shard_hint: Any = None) -> Any:  # noqa: ARG002
        return _Pipeline(self._player.network.send)

    def client(self) -> PlayedClient:
        return PlayedClient(self._player)


class AsyncPlayedClient(aio.Redis):
    """The same for asyncio."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self._player = player

    async def execute_command(self, *words: Any, **_: Any) -> Any:
        return _reply(await self._player.network.send_later([words]))

    def pipeline(self, transaction: bool = False, shard_hint: Any = None) -> Any:  # noqa: ARG002
        return _Pipeline(self._player.network.send_later)
