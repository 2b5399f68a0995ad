"""Connections of an asyncio client: who may use one, and those that are kept from call to call (``connections``)."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from redis import ResponseError
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster

from tbloom.engine.connections import mark, next_renewal, window
from tbloom.engine.flow import CORRECTIONS
from tbloom.engine.forks import in_child
from tbloom.engine.together import running_loop

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # redis-py needs it too

T = TypeVar("T")
#: The connections of an asyncio client in one event loop, at most; more would make no call faster.
_MOST = 50
#: Before 3.12, ``wait_for``, with which redis-py sends where there is a time limit, may swallow a cancellation.
_SWALLOWS = sys.version_info < (3, 12)


class OfLoop:
    """What an event loop has of a client."""

    def __init__(self, size: int) -> None:
        #: The room for connections in use.
        self.room = asyncio.Semaphore(size)
        #: The kept ones that are free.
        self.free = deque[Any]()
        #: When connections are closed, so that the address is asked anew (ns, by the monotonic clock).
        self.renewal = next_renewal()


class AsyncConnections:
    """Who may use a connection of an asyncio client, and those that are kept from call to call.

    Tasks wait where redis-py would raise MaxConnectionsError. Kept connections are of the pool's making; it does not count
    them among its own.
    """

    #: Of the parents of this process; never closed, because that would take them out of the selector, which is theirs too.
    _parents: ClassVar[list[object]] = []

    def __init__(self, client: AsyncRedis | AsyncRedisCluster) -> None:
        self._pool: Any = getattr(client, "connection_pool", None)
        #: Whether connections are kept.
        self.keeps = False
        self._size = min(_MOST, getattr(self._pool, "max_connections", _MOST))
        self._time_limit: float | None = None
        self._loops: dict[asyncio.AbstractEventLoop, OfLoop] = {}
        in_child(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Uses none of the parent's connections in a forked child; redis-py's pool would share them."""
        self._parents.append(self._loops)
        self._loops = {}
        if self._pool is not None:
            self._parents.append(self._pool._available_connections)  # noqa: SLF001
            self._parents.extend(self._pool._in_use_connections)  # noqa: SLF001
            self._pool.reset()

    def of_loop(self) -> OfLoop:
        """What this event loop has."""
        loop = running_loop()
        connections = self._loops.get(loop)
        if connections is None:
            connections = OfLoop(self._size)
            lasting = {of: kept for of, kept in self._loops.items() if not of.is_closed()}
            self._loops = {**lasting, loop: connections}
        return connections

    async def send(self, calls: Sequence[Any], replies: dict[int, Any], of_loop: OfLoop) -> None:
        """Adds the reply, or the server's error, to each call."""
        free = of_loop.free
        connection = free.pop() if free else await self._open()
        try:
            for data in window(calls):
                replies[len(replies)] = await self._reply(connection, data)
        except BaseException as error:
            await connection.disconnect(nowait=True)  # else the next call would read the rest
            if isinstance(error, Exception):
                await _close(free)  # the server may have closed these too
            raise
        free.append(connection)
        if not self.keeps or free is not of_loop.free:
            await _close(free)

    async def ask(self, request: bytes) -> Any:
        """The reply to a request, through a kept connection. Empty: the server may have executed the request, and the
        connection is closed. None: nothing was executed."""
        of_loop = self.of_loop()
        free = of_loop.free
        if not free or of_loop.room.locked():
            return None
        async with of_loop.room:
            connection = free.pop()
            try:
                reply = await self._reply(connection, request)
            except BaseException as error:
                await connection.disconnect(nowait=True)  # else the next call would read the rest
                if isinstance(error, Exception):
                    return ()
                raise
            free.append(connection)
            if not self.keeps or free is not of_loop.free:
                await _close(free)
            # A script raises an error before it changes anything.
            is_refused = isinstance(reply, ResponseError) or reply[0] in CORRECTIONS
            return None if is_refused else reply

    async def _reply(self, connection: Any, request: bytes) -> Any:
        """The next reply, or the server's error, after a request, if there is one."""
        async with timeout(self._time_limit):
            if request:
                await connection.send_packed_command((request,), check_health=False)
            try:
                return await connection.read_response(disable_decoding=True)
            except ResponseError as error:
                return error

    async def _open(self) -> Any:
        connection = self._pool.make_connection()
        try:
            await cancellable(connection.connect())
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        # With a time limit, redis-py would start a task for each request (before Python 3.12).
        self._time_limit, connection.socket_timeout = connection.socket_timeout, None
        return connection

    async def let_go(self) -> None:
        """Keeps none from now on."""
        self.keeps = False
        await _close(self.of_loop().free)

    async def renew(self) -> None:
        """Closes the free connections, and those in use when they come back."""
        of_loop = self.of_loop()
        of_loop.renewal = next_renewal()
        free, of_loop.free = of_loop.free, deque()
        await _close(free)
        if self._pool is not None:  # a cluster's client has none; its nodes say where the master is
            mark(self._pool._in_use_connections)  # noqa: SLF001
            # In one step: no task takes one of them meanwhile.
            for connection in self._pool._available_connections:  # noqa: SLF001
                await connection.disconnect(nowait=True)


async def _close(connections: deque[Any]) -> None:
    while connections:
        await connections.pop().disconnect()


async def cancellable(work: Coroutine[Any, Any, T]) -> T:
    """The result of redis-py's work; a cancellation that it swallows is raised once it has ended."""
    if not _SWALLOWS:
        return await work
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # else asyncio logs an error that nobody has asked for
        raise
    return task.result()
