"""The network between the library and the server: what a connection sends waits here, until the player decides what becomes of it.

The library is not changed: its redis-py clients open connections that lead here. So drivers,
retries, the prepared call of one item and asyncio's batcher are played as they are (``sync_client`` and ``async_client``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from redis import asyncio as aio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from tests.simulation.player import Worker

LOST = redis.ConnectionError("Connection closed by server.")


class Request:
    """A command in RESP, and its reply once the server has executed it."""

    __slots__ = ("data", "is_executed", "reply")

    def __init__(self, data: bytes) -> None:
        self.data, self.is_executed = data, False
        self.reply: Any = None

    @property
    def is_script(self) -> bool:
        """Whether it calls a script; other commands only read, or free memory."""
        return b"\r\nEVAL" in self.data[:20]


class Link:
    """One connection: requests that were sent and not yet answered, and who waits for the next reply."""

    def __init__(self, network: Network, name: str) -> None:
        self._network, self.name = network, name
        self.requests: deque[Request] = deque()
        #: The next reply for the reader, or the error that it gets.
        self.arrived: deque[Any] = deque()
        self.is_open, self.is_read = True, False
        #: The thread that waits for the next reply; what continues an asyncio reader.
        self.worker: Worker | None = None
        self.future: asyncio.Future[None] | None = None

    def send(self, data: bytes) -> None:
        """Takes what the library sends."""
        if not self.is_open:
            raise LOST
        self.requests += [Request(command) for command in _commands(data)]

    def read(self) -> Any:
        """The next reply; a thread waits for it."""
        self._network.used(self)
        while not self.arrived:
            self._network.park(self)
        return self._next()

    async def read_later(self) -> Any:
        """The next reply; a task waits for it."""
        self._network.used(self)
        while not self.arrived:
            self.future, self.is_read = asyncio.get_running_loop().create_future(), True
            try:
                await self.future
            finally:
                self.is_read = False
        return self._next()

    def _next(self) -> Any:
        reply = self.arrived.popleft()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def arrive(self, reply: Any) -> None:
        """The reader gets a reply, or an error."""
        self.arrived.append(reply)
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def close(self) -> None:
        """The library closes the connection: what the server has not executed yet has the fate that the player chose."""
        if self.is_open:
            self.is_open = False
            self._network.closed(self)


def _commands(data: bytes) -> Iterator[bytes]:
    """The commands of what was sent at once."""
    at = 0
    while at < len(data):
        begin, end = at, data.index(b"\r\n", at)
        words, at = int(data[at + 1 : end]), end + 2
        for _ in range(words):
            end = data.index(b"\r\n", at)
            at = end + 4 + int(data[at + 1 : end])
        yield data[begin:at]


class Network:
    """All links of one schedule."""

    def __init__(self, park: Callable[[Link], None]) -> None:
        self.park = park
        self.links: list[Link] = []
        #: Requests of closed connections that the server may still get.
        self.late: list[Request] = []
        #: What becomes of the requests of a connection that is closed now: "lost" or "late".
        self.fate = "lost"
        #: Who uses a connection, for the names of moves.
        self.user: Callable[[Link], str] = lambda link: link.name

    def open(self) -> Link:
        """A new connection."""
        link = Link(self, f"connection {len(self.links)}")
        self.links.append(link)
        return link

    def used(self, link: Link) -> None:
        """Somebody reads from the connection."""
        link.name = self.user(link)

    def closed(self, link: Link) -> None:
        """A connection is closed."""
        if self.fate == "late":
            self.late += [r for r in link.requests if not r.is_executed and r.is_script]
        link.requests.clear()

    def waiting(self) -> list[Link]:
        """The connections whose readers wait for the player's move."""
        return [link for link in self.links if link.is_open and link.is_read and not link.arrived]


class _Played:
    """What both connections have: a link in place of a socket."""

    #: The network of the present schedule, and its client's number.
    place: Any = None
    link: Link | None = None

    @property
    def is_connected(self) -> bool:
        return self.link is not None and self.link.is_open

    def _opened(self) -> Link:
        if self.link is None or not self.link.is_open or self.link not in self.place.network.links:
            self.link = self.place.network.open()
        return self.link

    @contextmanager
    def _open_unless_broken(self) -> Iterator[None]:
        """redis-py closes a connection whose reply could not be read, also after an interrupt or a cancellation."""
        try:
            yield
        except redis.ResponseError:
            raise
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()


class PlayedConnection(_Played, redis.Connection):
    """A connection of ``redis.Redis``."""

    def __init__(self, *, place: Any, **arguments: Any) -> None:
        super().__init__(**arguments)  # type: ignore[no-untyped-call]
        self.place = place

    def connect(self) -> None:
        self._opened()

    def disconnect(self, *_: object, **__: object) -> None:
        self._let_go()

    def can_read(self, *_: object, **__: object) -> bool:
        return False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ARG002
        self.connect()
        assert self.link is not None
        self.link.send(command if isinstance(command, bytes) else b"".join(command))

    def read_response(self, *_: object, **__: object) -> Any:
        if self.link is None:
            raise LOST
        with self._open_unless_broken():
            return self.link.read()


class AsyncPlayedConnection(_Played, aio.Connection):
    """A connection of ``redis.asyncio.Redis``."""

    def __init__(self, *, place: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.place = place

    async def connect(self) -> None:
        self._opened()

    async def disconnect(self, *_: object, **__: object) -> None:
        self._let_go()

    async def can_read(self, *_: object, **__: object) -> bool:
        return False

    can_read_destructive = can_read

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ARG002
        self._opened().send(command if isinstance(command, bytes) else b"".join(command))

    async def read_response(self, *_: object, **__: object) -> Any:
        if self.link is None:
            raise LOST
        with self._open_unless_broken():
            return await self.link.read_later()


class Place:
    """Where the clients' connections lead: the network of the present schedule."""

    def __init__(self) -> None:
        self.network = Network(lambda _: None)


def sync_client(place: Place) -> redis.Redis:
    """A client for threads, without retries of redis-py's own."""
    none = Retry(NoBackoff(), 0)
    return redis.Redis(
        connection_pool=redis.ConnectionPool(
            connection_class=PlayedConnection, place=place, protocol=2, retry=none
        )
    )


def async_client(place: Place) -> aio.Redis:
    """The same for asyncio."""
    none = AsyncRetry(NoBackoff(), 0)
    return aio.Redis(
        connection_pool=aio.ConnectionPool(
            connection_class=AsyncPlayedConnection, place=place, protocol=2, retry=none
        )
    )
