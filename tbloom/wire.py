"""Script calls over connections that are kept from call to call, for a client that is ours alone.

To take a connection from redis-py's pool, to look whether it still works, and to give it back, takes
half as long as a whole ``SADD``. A kept connection is simply used. If the server has closed it meanwhile,
its next call is lost, so this is for callers that send lost calls again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import Connection, ConnectionPool, Redis, RedisError, ResponseError

from tbloom.calls import Call, ScriptCall

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
        if not all(isinstance(call, ScriptCall) for call in calls):
            self.let_go()
            return []
        connection, replies = self._take(), list[Any]()
        try:
            for call in calls:  # each is on its way while the next one's words are made
                connection.send_packed_command(_pack(connection, call.words))
            for _ in calls:
                replies.append(_reply(connection))
        except BaseException as error:
            connection.disconnect()  # else what still comes would be taken for the next call's reply
            self._pool.release(connection)
            self.let_go()  # the others may be lost too; the pool will look
            if not isinstance(error, RedisError):
                raise
            replies += [error] * (len(calls) - len(replies))
            return replies
        if len(self._kept) < self._most and not connection.should_reconnect():
            self._kept.append(connection)
        else:
            self._pool.release(connection)
        return replies

    def _take(self) -> Any:
        try:
            connection = self._kept.pop()
        except IndexError:
            return self._pool.get_connection()
        # A forked process leaves its parent's to the parent.
        return connection if connection.pid == os.getpid() else self._take()

    def let_go(self) -> None:
        """Gives those that are not in use back to the pool."""
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._pool.release(self._kept.pop())


def _pack(connection: Any, words: tuple[Any, ...]) -> Any:
    """The command's bytes. (redis-py calls hiredis, if it is there, too, but takes longer than that for it.)"""
    return connection.pack_command(*words) if pack_command is None else [pack_command(words)]


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
