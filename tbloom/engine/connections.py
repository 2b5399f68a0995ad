"""Connections that are kept from call to call, for a client that nothing else uses; how many calls are sent at once.

redis-py takes a connection from its pool, checks it and gives it back for each call, in half the time of a whole ``SADD``.
A kept connection skips that. If the server has closed it, the next call fails, so this needs retries.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from redis import Connection, ConnectionPool, RedisCluster, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis import TimeoutError as RedisTimeoutError
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.client import NEVER_DECODE

from tbloom.engine.flow import Call, Command, chunks
from tbloom.engine.forks import BeginsAnew, in_child

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # redis-py needs it too

T = TypeVar("T")
#: The option of commands whose replies are bytes, whatever the client's ``decode_responses`` is: another program may have
#: written what is no text.
IN_BYTES: dict[str, Any] = {NEVER_DECODE: True}
#: The calls of a connection that are on their way, at most: the server may execute all of them before another client's.
AT_ONCE = 4
#: More than an expected reply has.
_REPLY_BYTES = 64
#: redis-py before 7 has other connections and pools.
CAN_KEEP = hasattr(Connection, "should_reconnect")
#: The connections of an asyncio client in one event loop, at most; more would make no call faster.
_MOST = 50
#: Before 3.12, ``wait_for``, with which redis-py sends where there is a time limit, may swallow a cancellation.
_SWALLOWS = sys.version_info < (3, 12)


class KeptConnections(BeginsAnew):
    """The kept connections of one pool, for any number of threads.

    For the pool they are in use, so at most half of its ``max_connections`` are kept.
    """

    __slots__ = ("_free", "_limit", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._limit = pool.max_connections // 2
        super().__init__()

    def begin(self) -> None:
        """Keeps none in a forked child: they are its parent's."""
        self._free: deque[Any] = deque()

    def give_up(self, connection: Any) -> None:
        """Closes a connection: the next call would read the rest of its replies."""
        connection.disconnect()
        self._pool.release(connection)
        self.let_go()  # the others may be closed too; the pool checks them

    def ask(self, request: bytes, expected: Sequence[bytes]) -> bytes | None:
        """The reply to a request, as it came, if it is one of those expected. Empty: the server may have executed the
        request, and the connection is closed. None: nothing was executed."""
        try:
            connection = self._free.pop()
        except IndexError:
            return None
        sock, reply = socket_of(connection), b""
        if sock is None:  # redis-py sends
            self._free.append(connection)
            return None
        try:
            sock.sendall(request)
            reply = sock.recv(_REPLY_BYTES)
        except OSError:
            pass  # the next try tells
        finally:
            if reply in expected:
                self._free.append(connection)
            else:
                self.give_up(connection)
        if reply.startswith(b"-"):  # an error, which a script raises before it changes anything
            return None
        return reply if reply in expected else b""

    def let_go(self) -> None:
        """Gives the free ones back to the pool."""
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._pool.release(self._free.pop())

    def send(self, calls: Sequence[Any], replies: dict[int, Any]) -> None:
        """Adds the reply, or the server's error, to each call."""
        connection = None
        with suppress(IndexError):
            connection = self._free.pop()
        connection = connection or self._pool.get_connection()
        try:
            sock = socket_of(connection)
            for some in [calls] if sock else chunks(calls, AT_ONCE):
                for number, data in enumerate(window(some)):
                    if number == 0:
                        connection.send_packed_command((data,), check_health=False)
                    elif data and sock:  # redis-py might reconnect here, and lose replies
                        sock.sendall(data)
                    try:
                        reply = connection.read_response(disable_decoding=True)
                    except ResponseError as error:
                        reply = error
                    replies[len(replies)] = reply
        except BaseException:
            self.give_up(connection)
            raise
        if len(self._free) < self._limit and not connection.should_reconnect():
            self._free.append(connection)
        else:
            self._pool.release(connection)


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
        self._loops: dict[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, deque[Any]]] = {}
        in_child(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Uses none of the parent's connections in a forked child; redis-py's pool would share them."""
        self._parents.append(self._loops)
        self._loops = {}
        if self._pool is not None:
            self._parents.append(self._pool._available_connections)  # noqa: SLF001
            self._parents.extend(self._pool._in_use_connections)  # noqa: SLF001
            self._pool.reset()

    def of_loop(self) -> tuple[asyncio.Semaphore, deque[Any]]:
        """The room for connections in this event loop, and the free ones that are kept for it."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            open_ones = {other: its for other, its in self._loops.items() if not other.is_closed()}
            found = asyncio.Semaphore(self._size), deque[Any]()
            self._loops = {**open_ones, loop: found}
        return found

    async def send(self, calls: Sequence[Any], replies: dict[int, Any], free: deque[Any]) -> None:
        """Adds the reply, or the server's error, to each call."""
        connection = free.pop() if free else await self._open()
        try:
            for data in window(calls):
                async with timeout(self._time_limit):
                    if data:
                        await connection.send_packed_command((data,), check_health=False)
                    try:
                        reply = await connection.read_response(disable_decoding=True)
                    except ResponseError as error:
                        reply = error
                    replies[len(replies)] = reply
        except BaseException as error:
            await connection.disconnect(nowait=True)  # else the next call would read the rest
            if isinstance(error, Exception):
                await _close(free)  # the server may have closed these too
            raise
        free.append(connection)
        if not self.keeps:
            await _close(free)

    async def ask(self, request: bytes) -> Any:
        """The reply to a request, through a kept connection. Empty: the server may have executed the request, and the
        connection is closed. None: nothing was executed."""
        room, free = self.of_loop()
        if not free or room.locked():
            return None
        async with room:
            connection = free.pop()
            try:
                async with timeout(self._time_limit):
                    await connection.send_packed_command((request,), check_health=False)
                    reply = await connection.read_response(disable_decoding=True)
            except ResponseError:  # which a script raises before it changes anything
                reply = None
            except BaseException as error:
                await connection.disconnect(nowait=True)  # else the next call would read the rest
                if isinstance(error, Exception):
                    return ()
                raise
            free.append(connection)
            if not self.keeps:
                await _close(free)
            return reply

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
        _, free = self.of_loop()
        await _close(free)


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


def window(calls: Sequence[Any]) -> list[bytes]:
    """For each reply, what is sent before it is read: the first calls together, then one for each reply that has come, so
    that the server always has its next one."""
    requests = [call.packed for call in calls]
    rest = [b""] * (min(len(requests), AT_ONCE) - 1)
    return [b"".join(requests[:AT_ONCE]), *requests[AT_ONCE:], *rest]


def socket_of(connection: Any) -> socket.socket | None:
    """The plain socket of a redis-py connection; None with TLS, while it is closed, and if redis-py has none by this name."""
    sock = getattr(connection, "_sock", None)
    return sock if type(sock) is socket.socket else None


def as_disconnected(error: BaseException) -> BaseException:
    """The error; redis-py's for that of a socket, and of a connection whose pool another thread has disconnected."""
    if isinstance(error, TimeoutError | asyncio.TimeoutError):  # two until Python 3.11
        return RedisTimeoutError("no reply in time")
    if isinstance(error, AttributeError | OSError):
        return RedisConnectionError(f"disconnected while in use ({error})")
    return error


def in_turns(client: Any, calls: Sequence[Call]) -> Iterable[Sequence[int]]:
    """The places of the calls that redis-py sends together: at most ``AT_ONCE`` to a node."""
    if len(calls) <= AT_ONCE:
        return [range(len(calls))]
    turns, sent = defaultdict[int, list[int]](list), Counter[str]()
    for place, call in enumerate(calls):
        node = ""
        if isinstance(client, RedisCluster | AsyncRedisCluster):
            node = getattr(client.get_node_from_key(call.key), "name", "")
        turns[sent[node] // AT_ONCE].append(place)
        sent[node] += 1
    return turns.values()


def options(client: Any, call: Call) -> dict[str, Any]:
    """redis-py's options for the call.

    In a cluster, its node: redis-py's pipeline asks another node for that of a script call, in one round trip a call, and
    ``TIME`` has no key.
    """
    if isinstance(client, RedisCluster) or (
        isinstance(client, AsyncRedisCluster) and isinstance(call, Command)
    ):
        return {"target_nodes": client.get_node_from_key(call.key), **IN_BYTES}
    return IN_BYTES
