"""Connections that are kept from call to call, for a client that nothing else uses.

redis-py takes a connection from its pool, checks it and gives it back for each call, in half the time of a whole ``SADD``.
A kept connection skips that. If the server has closed it, the next call fails, so this needs retries.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import Connection, ConnectionPool, Redis, RedisCluster, RedisError, ResponseError
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.client import NEVER_DECODE

from tbloom.engine.flow import Call, Command

#: The option of commands whose replies are bytes, whatever the client's ``decode_responses`` is: another program may have
#: written what is no text.
IN_BYTES: dict[str, Any] = {NEVER_DECODE: True}


class KeptConnections:
    """The kept connections of one pool, for any number of threads.

    For the pool they are in use, so at most half of its ``max_connections`` are kept.
    """

    __slots__ = ("_kept", "_limit", "_pid", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._limit = pool.max_connections // 2
        self._kept: deque[Any] = deque()
        self._pid = os.getpid()

    @classmethod
    def of(cls, client: object) -> KeptConnections | None:
        """Those of a client; None for a cluster's, and with a redis-py before 7, whose pools differ."""
        if isinstance(client, Redis) and hasattr(Connection, "should_reconnect"):
            return cls(client.connection_pool)
        return None

    def send(self, calls: Sequence[Any]) -> list[Any]:
        """The reply, or redis-py's error, to each call; a connection error for all that got no reply."""
        if self._pid != os.getpid():  # the others are the parent's of this fork
            self._kept, self._pid = deque(), os.getpid()
        try:
            connection = self._kept.pop()
        except IndexError:
            connection = self._pool.get_connection()
        replies: list[Any] = []
        try:
            packed = b"".join([call.packed for call in calls])
            # One packed command for all: between two, redis-py might reconnect.
            connection.send_packed_command((packed,), check_health=False)
            while len(replies) < len(calls):
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:  # noqa: PERF203 - a function of its own would cost more
                    replies.append(error)
        except BaseException as error:  # noqa: BLE001 - it may be raised again
            return [*replies, *[self._give_up(connection, error)] * (len(calls) - len(replies))]
        if len(self._kept) < self._limit and not connection.should_reconnect():
            self._kept.append(connection)
        else:
            self._pool.release(connection)
        return replies

    def _give_up(self, connection: Any, error: BaseException) -> RedisError:
        """redis-py's error for calls without a reply; raises another one."""
        connection.disconnect()  # else the next call would read the rest of these replies
        self._pool.release(connection)
        self.let_go()  # the others may be closed too; the pool checks them
        error = as_disconnected(error)
        if isinstance(error, RedisError):
            return error
        raise error

    def let_go(self) -> None:
        """Gives the free ones back to the pool."""
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                self._pool.release(self._kept.pop())


def as_disconnected(error: BaseException) -> BaseException:
    """The error; a ConnectionError for that of a connection whose pool another thread has disconnected."""
    if isinstance(error, AttributeError):
        return RedisConnectionError(f"disconnected while in use ({error})")
    return error


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
