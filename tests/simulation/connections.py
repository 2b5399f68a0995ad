"""The connections that redis-py's clients open in place of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis import asyncio as aio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.simulation.network import LOST, Link, Network


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
