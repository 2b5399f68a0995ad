"""How script calls reach the server: over connections that are kept, for a client that is ours alone.

To take a connection from redis-py's pool, to look whether it still works, and to give it back, takes
half as long as a whole ``SADD``. A kept connection is simply used. If the server has closed it meanwhile,
its next call is lost, so this is for callers that send lost calls again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from redis import Connection, ConnectionPool, Redis, RedisCluster, RedisError, ResponseError
from redis import ConnectionError as LostConnection

from tbloom.engine.flow import Call, ScriptCall

try:
    from hiredis import pack_command
except ImportError:  # it is optional
    pack_command = None  # type: ignore[assignment]


class Wire:
    """The kept connections of one pool, for any number of threads.

    The pool takes them for being in use, so no more than half of what it may have are kept.
    """

    __slots__ = ("_kept", "_most", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._most = pool.max_connections // 2
        self._kept: deque[Any] = deque()

    @classmethod
    def of(cls, client: object) -> Wire | None:
        """That of a client; None for a cluster's, and with a redis-py (before 7) whose pools work otherwise."""
        if isinstance(client, Redis) and hasattr(Connection, "should_reconnect"):
            return cls(client.connection_pool)
        return None

    def exchange(self, calls: Sequence[Call]) -> list[Any]:
        """The reply, or redis-py's error, to each call; where the connection is lost, to all from then on.

        Nothing where not all of them are script calls: redis-py has to read the replies to others. It may need
        a connection for that, so none is kept.
        """
        if {*map(type, calls)} != {ScriptCall}:
            self.let_go()
            return []
        connection, replies = self._take(), list[Any]()
        try:
            # All at once for redis-py, which would connect anew between two, or look after its health.
            connection.send_packed_command(_packed(connection, calls))
            for _ in calls:
                replies.append(_reply(connection))
        except BaseException as error:
            connection.disconnect()  # else what still comes would be taken for the next call's reply
            self._pool.release(connection)
            self.let_go()  # the others may be lost too; the pool will look
            lost = _as_lost(error)
            if lost is None:
                raise
            return [*replies, *[lost] * (len(calls) - len(replies))]
        if len(self._kept) < self._most and not connection.should_reconnect():
            self._kept.append(connection)
        else:
            self._pool.release(connection)
        return replies

    def _take(self) -> Any:
        while True:
            try:
                connection = self._kept.pop()
            except IndexError:
                return self._pool.get_connection()
            if connection.pid == os.getpid():  # else a fork's parent's, which is left to it
                return connection

    def let_go(self) -> None:
        """Gives those that are not in use back to the pool."""
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._pool.release(self._kept.pop())


def target(client: Any, call: Call) -> dict[str, Any]:
    """The call's node in a cluster; redis-py's pipeline would ask another node for it, one trip a call."""
    if isinstance(client, RedisCluster) and isinstance(call, ScriptCall):
        return {"target_nodes": client.get_node_from_key(call.keys[0])}  # type: ignore[no-untyped-call]
    return {}


def _packed(connection: Any, calls: Sequence[Call]) -> Iterable[bytes]:
    """The calls' bytes."""
    if pack_command is None:
        packed: Iterable[bytes] = connection.pack_commands([call.words for call in calls])
        return packed
    # redis-py would call hiredis as well, but take longer than that for it.
    return _bundles(calls) if len(calls) > 1 else (pack_command(calls[0].words),)


def _bundles(calls: Sequence[Call]) -> Iterator[bytes]:
    """Bundles of 1, 2, 4, ... calls: while the server works on one, the next is made."""
    first, size = 0, 1
    while first < len(calls):
        yield b"".join(pack_command(call.words) for call in calls[first : first + size])
        first, size = first + size, 2 * size


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _as_lost(error: BaseException) -> Exception | None:
    """redis-py's error for a call that was lost."""
    if isinstance(error, AttributeError):  # another thread has disconnected the pool
        return LostConnection(f"disconnected while in use ({error})")
    return error if isinstance(error, RedisError) else None
