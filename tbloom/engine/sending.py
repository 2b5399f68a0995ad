"""How calls go through a redis-py client, for both drivers: by its public methods only, so that a subclass, a tracer or a
fake sees each one.

One call is one ``execute_command``; several are a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import monotonic_ns
from typing import Any

import redis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.client import NEVER_DECODE

from tbloom.engine.flow import Call
from tbloom.engine.retries import as_redis_error

#: How long (ns) connections are used before the address is asked anew: it may lead to a new master by now. A read would
#: never notice, because the old master answers it as a replica.
_RENEWAL_NS = 60_000_000_000
#: What redis-py's errors are made of where another thread closes the connection that it uses.
_BROKEN = (OSError, AttributeError, RuntimeError, ValueError)
#: Replies are bytes, whatever the client's ``decode_responses`` is.
BYTES: dict[str, Any] = {NEVER_DECODE: True}


def next_renewal() -> int:
    """When the connections that are open now are closed (ns, by the monotonic clock)."""
    return monotonic_ns() + _RENEWAL_NS


def is_cluster(client: Any) -> bool:
    """Whether the client is that of a cluster."""
    return isinstance(client, (redis.RedisCluster, AsyncRedisCluster))


def plain_options(client: Any) -> dict[str, Any]:
    """The options of ``execute_command`` for all calls of a client; none, if each has its own."""
    has_cache = getattr(client, "get_cache", lambda: None)() is not None
    return {} if has_cache or is_cluster(client) else BYTES


def options_of(client: Any, call: Call) -> dict[str, Any]:
    """The options of ``execute_command`` for a call, where each has its own."""
    if is_cluster(client):  # redis-py would ask the server which of the words are keys
        return {**BYTES, "target_nodes": client.get_node_from_key(call.key)}
    return {**BYTES, "keys": [call.key]}  # for the client's cache


def queued(client: Any, commands: Iterable[Call]) -> Any:
    """A pipeline that has these commands."""
    pipeline, plain = client.pipeline(transaction=False), plain_options(client)
    for each in commands:
        pipeline.execute_command(*each.words, **(plain or options_of(client, each)))
    return pipeline


def node_of(client: Any, call: Call) -> str:
    """The name of the node that a call goes to; nothing where there is one server, or none for the key at present."""
    if is_cluster(client):
        with suppress(redis.exceptions.RedisClusterException):
            return str(client.get_node_from_key(call.key).name)
    return ""


def redis_error(error: BaseException) -> Exception:
    """redis-py's error for what it has raised; raises what is none of its errors, such as an interrupt, once more."""
    # The traceback would refer to the caller's frame, and so to the store.
    if isinstance(error, (redis.RedisError, redis.exceptions.RedisClusterException)):
        return as_redis_error(error).with_traceback(None)
    if isinstance(error, TimeoutError):
        return redis.TimeoutError("no reply in time")
    # A TypeError too, where redis-py polls a socket that is None by now; others are of wrong options.
    if isinstance(error, _BROKEN) or (isinstance(error, TypeError) and "fileno" in str(error)):
        return redis.ConnectionError(f"disconnected while in use ({error})")
    raise error
