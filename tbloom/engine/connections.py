"""Connections that are kept from call to call, for a client that nothing else uses; how many calls are sent at once.

redis-py takes a connection from its pool, checks it and gives it back for each call, in half the time of a whole ``SADD``.
A kept connection skips that. If the server has closed it, the next call fails, so this needs retries.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from queue import Empty
from time import monotonic_ns
from typing import Any

from redis import BlockingConnectionPool, Connection, ConnectionPool, RedisCluster, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis import TimeoutError as RedisTimeoutError
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.client import NEVER_DECODE

from tbloom.engine.flow import CORRECTIONS, Call, Command, chunks
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.retries import by_redis_py

#: The option of commands whose replies are bytes, whatever the client's ``decode_responses`` is: another program may have
#: written what is no text.
IN_BYTES: dict[str, Any] = {NEVER_DECODE: True}
#: The calls of a connection that are on their way, at most: the server may execute all of them before another client's.
AT_ONCE = 4
#: More than an expected reply has.
_REPLY_BYTES = 64
#: How replies begin that have changed nothing: errors, which scripts raise first, and corrections of what the client knows.
_CHANGED_NOTHING = (b"-", *[b"*2\r\n:%d\r\n" % status for status in CORRECTIONS])
#: redis-py before 7 has other connections and pools.
CAN_KEEP = hasattr(Connection, "should_reconnect")
#: How long (ns) connections are used before the address is asked anew: it may lead to a new master by now. A read would
#: never notice, because the old master answers it as a replica.
_RENEWAL_NS = 60_000_000_000


def next_renewal() -> int:
    """When the connections that are open now are closed (ns, by the monotonic clock)."""
    return monotonic_ns() + _RENEWAL_NS


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
        if lock := getattr(self._pool, "_lock", None):
            # Of the pool: in a child it stays locked, if another thread of the parent had it.
            self._pool._lock = type(lock)()  # noqa: SLF001

    def give_up(self, connection: Any) -> None:
        """Closes a connection: the next call would read the rest of its replies."""
        connection.disconnect()
        self._pool.release(connection)
        self.let_go()  # the others may be closed too; the pool checks them

    def ask(self, request: bytes, expected: Sequence[bytes]) -> bytes | None:
        """The reply to a request, as it came, if it is one of those expected. Empty: the server may have executed the
        request, and the connection is closed. None: nothing was executed."""
        free = self._free
        try:
            connection = free.pop()
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
            if reply in expected and free is self._free:
                free.append(connection)
            else:
                self.give_up(connection)
        if reply.startswith(_CHANGED_NOTHING):
            return None
        return reply if reply in expected else b""

    def let_go(self) -> None:
        """Gives the free ones back to the pool."""
        _release(self._free, self._pool)

    def renew(self) -> None:
        """Gives the free ones back to the pool, and closes those in use when they come back."""
        free, self._free = self._free, deque()
        _release(free, self._pool)

    def send(self, calls: Sequence[Any], replies: dict[int, Any]) -> None:
        """Adds the reply, or the server's error, to each call."""
        connection, free = None, self._free
        with suppress(IndexError):
            connection = free.pop()
        connection = connection or self._pool.get_connection()
        try:
            sock = socket_of(connection)
            for turn in [calls] if sock else chunks(calls, AT_ONCE):
                for number, data in enumerate(window(turn)):
                    if number == 0:
                        connection.send_packed_command((data,), check_health=False)
                    elif data and sock:  # redis-py might reconnect here, and lose replies
                        sock.sendall(data)
                    try:
                        reply = connection.read_response(disable_decoding=True)
                    except ResponseError as error:
                        # The traceback would refer to this frame, and so to the store.
                        reply = error.with_traceback(None)
                    replies[len(replies)] = reply
        except BaseException:
            self.give_up(connection)
            raise
        if free is not self._free:
            self.give_up(connection)
        elif len(free) < self._limit and not connection.should_reconnect():
            free.append(connection)
        else:
            self._pool.release(connection)


def _release(connections: deque[Any], pool: ConnectionPool) -> None:
    with suppress(IndexError):  # another thread may have taken the last one
        while True:
            pool.release(connections.pop())


def close_and_mark(pool: ConnectionPool) -> None:
    """Closes a pool's free connections, none of which a thread takes meanwhile, and marks those in use."""
    if isinstance(pool, BlockingConnectionPool):
        mark(pool._connections)  # noqa: SLF001
        free = list[Any]()
        with suppress(Empty):
            while True:
                free.append(pool.pool.get_nowait())
        for connection in reversed(free):
            if connection is not None:
                connection.disconnect()
            pool.pool.put_nowait(connection)
    else:
        mark(pool._in_use_connections)  # noqa: SLF001
        pool.disconnect(inuse_connections=False)


def mark(connections: Iterable[Any]) -> None:
    """Has redis-py's pool close connections once they come back. (Before version 7 it can't.)"""
    if CAN_KEEP:
        for connection in [*connections]:
            connection.mark_for_reconnect()


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
    if isinstance(error, OSError) or (isinstance(error, AttributeError) and by_redis_py(error)):
        return RedisConnectionError(f"disconnected while in use ({error})")
    return error


def in_turns(client: Any, calls: Sequence[Call]) -> Iterable[Sequence[int]]:
    """The places, in line, of the calls that redis-py sends together: at most ``AT_ONCE`` to a node; to one node only,
    where something is behind them."""
    if len(calls) <= AT_ONCE and not any(call.behind for call in calls):
        return [range(len(calls))]
    turns, sent, place = defaultdict[tuple[int, str], list[int]](list), Counter[str](), 0
    for call in calls:
        node = ""
        if isinstance(client, RedisCluster | AsyncRedisCluster):
            node = getattr(client.get_node_from_key(call.key), "name", "")
        end = place + 1 + len(call.behind)
        turns[sent[node] // AT_ONCE, node if call.behind else ""].extend(range(place, end))
        sent[node], place = sent[node] + 1, end
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
