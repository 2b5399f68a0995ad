"""The connections of an asyncio client: see ``connections``. Tasks wait where redis-py would raise MaxConnectionsError."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any
from weakref import WeakKeyDictionary

from redis import ResponseError
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster

from tbloom.engine.connections import (
    ANY,
    BROKEN,
    as_disconnected,
    by_node,
    in_window,
    next_renewal,
)
from tbloom.engine.flow import CORRECTIONS, Call
from tbloom.engine.replicas import reply_of, with_behind
from tbloom.engine.retries import as_redis_error

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # redis-py needs it too

#: The connections of an asyncio client, at most; more would make no call faster.
_MOST = 50


class AsyncConnections:
    """The connections of one client, for the tasks of one event loop; ``keeps``: from call to call."""

    def __init__(self, client: AsyncRedis | AsyncRedisCluster) -> None:
        self._client: Any = client
        self._pool: Any = getattr(client, "connection_pool", None)
        self.keeps = False
        self._room = asyncio.Semaphore(min(_MOST, getattr(self._pool, "max_connections", _MOST)))
        self._free = deque[Any]()
        self._opened: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        #: When connections are closed, so that the address is asked anew (ns, by the monotonic clock).
        self.renewal = next_renewal()
        self._time_limit: float | None = None

    def keep(self) -> None:
        """Keeps connections from now on: nothing else uses the client."""
        self.keeps = True
        # With a time limit, redis-py would start a task for each request, which may swallow a cancellation (before
        # Python 3.12).
        self._time_limit = self._pool.connection_kwargs.get("socket_timeout")
        self._pool.connection_kwargs["socket_timeout"] = None

    async def ask(self, request: bytes) -> Any:
        """The reply to a request, through a kept connection. Empty: the server may have executed the request, and the
        connection is closed. None: nothing was executed."""
        free = self._free
        if not free or self._room.locked():
            return None
        async with self._room:
            connection = free.pop()
            try:
                reply = await self._read(connection, request)
            except BaseException as error:
                await self._give_up(self._pool, connection)
                if isinstance(error, Exception):
                    return ()
                raise
            await self._give_back(self._pool, connection, free)
            # A script raises an error before it changes anything.
            is_refused = isinstance(reply, ResponseError) or reply[0] in CORRECTIONS
            return None if is_refused else reply

    async def send(self, calls: Sequence[Call]) -> list[Any]:
        """The reply to each call, or the error."""
        requests, replies, lost = [with_behind(call) for call in calls], dict[int, Any](), None

        async def send() -> None:
            talks = [
                self._talk(
                    pool, {place: (calls[place], requests[place]) for place in places}, replies
                )
                for pool, places in by_node(self._client, calls)
            ]
            if len(talks) == 1:
                await talks[0]
                return
            for error in await asyncio.gather(*talks, return_exceptions=True):
                if error is not None:
                    raise error

        async def again(_: Exception) -> None:
            """Nothing has to be done between two tries."""

        async with self._room:
            if monotonic_ns() >= self.renewal:
                await self.renew()
            retry = self._client.get_retry() if self._pool is not None else None
            try:
                await (retry.call_with_retry(send, again) if retry else send())
            except Exception as error:  # noqa: BLE001 - Retries raises what is not retried
                lost = as_redis_error(error)
        return [replies.get(place, lost) for place in range(len(calls))]

    async def _talk(
        self, pool: Any, calls: dict[int, tuple[Call, bytes]], replies: dict[int, Any]
    ) -> None:
        free, connection = self._free, await self._take(pool)
        try:
            window = in_window([request for _, request in calls.values()])
            data = next(window)
            for place, (call, _) in calls.items():
                came = [await self._read(connection, data)]
                came += [await self._read(connection) for _ in call.behind]
                replies[place] = reply_of(call, came)
                data = next(window, b"")
                if data and not connection.is_connected:
                    # Another task has closed it: redis-py would connect again, and lose replies.
                    raise OSError("closed by another task")  # noqa: TRY301
        except BaseException as error:
            await self._give_up(pool, connection)
            if isinstance(error, BROKEN):
                raise as_disconnected(error) from error
            raise
        await self._give_back(pool, connection, free)

    async def _read(self, connection: Any, request: bytes = b"") -> Any:
        """The next reply, or the server's error, after a request, if there is one."""
        async with timeout(self._time_limit):
            if request:
                await connection.send_packed_command((request,), check_health=False)
            try:
                return await connection.read_response(disable_decoding=True)
            except ResponseError as error:
                return error

    async def _take(self, pool: Any) -> Any:
        if self._free:
            return self._free.pop()
        if hasattr(pool, "acquire_connection"):  # a cluster's node
            connection = pool.acquire_connection()
        else:
            try:
                async with timeout(self._time_limit):
                    connection = await pool.get_connection(*ANY)
            except BROKEN as error:
                raise as_disconnected(error) from error
        if self._opened.setdefault(connection, self.renewal) != self.renewal:
            await connection.disconnect(nowait=True)  # it connects when it sends
            self._opened[connection] = self.renewal
        return connection

    async def _give_back(self, pool: Any, connection: Any, free: deque[Any]) -> None:
        if self.keeps and free is self._free:
            free.append(connection)
        else:
            await _release(pool, connection)

    async def _give_up(self, pool: Any, connection: Any) -> None:
        """Closes a connection: the next call would read the rest of its replies."""
        await connection.disconnect(nowait=True)
        await _release(pool, connection)
        await self.let_go()  # the server may have closed these too

    async def let_go(self) -> None:
        """Closes the free ones, and gives them back to the pool."""
        free, self._free = self._free, deque()
        for connection in free:
            await connection.disconnect(nowait=True)
            await _release(self._pool, connection)

    async def renew(self) -> None:
        """Has all connections closed before they are used again."""
        self.renewal = next_renewal()
        await self.let_go()


async def _release(pool: Any, connection: Any) -> None:
    if not hasattr(pool, "acquire_connection"):
        await pool.release(connection)
    elif hasattr(pool, "release"):
        pool.release(connection)
    else:  # redis-py before 7
        pool._free.append(connection)  # noqa: SLF001
