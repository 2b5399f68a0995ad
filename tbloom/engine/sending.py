"""The parts of sending calls through a redis-py client that both drivers share.

A single call goes through ``execute_command``, several calls through a pipeline. Only public methods are used, so that a
subclass, a tracer or a fake sees each call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

import redis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.client import NEVER_DECODE, Pipeline
from redis.cluster import ClusterPipeline

from tbloom.engine.flow import Call
from tbloom.engine.retries import as_redis_error

#: How long (s) the connections of our own client are used before they are closed, so that DNS or a Sentinel is asked again: it
#: may lead to a new master by then. Otherwise reads would keep hitting a demoted master, which answers them as a replica.
_RENEWAL_SECONDS = 60.0
#: Errors that redis-py raises if another thread closes the connection that it uses.
_BROKEN = (OSError, AttributeError, RuntimeError, ValueError)
#: The most connections of a client; more would make no call faster.
_MOST_CONNECTIONS = 50
#: Replies are bytes, whatever the client's ``decode_responses`` is.
BYTES: dict[str, Any] = {NEVER_DECODE: True}


def next_renewal() -> float:
    """Return when to close the connections that are open now (monotonic)."""
    return monotonic() + _RENEWAL_SECONDS


def is_cluster(client: Any) -> bool:
    """Return True if the client is a cluster's."""
    return isinstance(client, redis.RedisCluster | AsyncRedisCluster)


def is_pipeline(client: Any) -> bool:
    """Return True if the client only collects commands."""
    return isinstance(client, Pipeline | ClusterPipeline | AsyncPipeline)


def most_calls(client: Any) -> int:
    """Return how many calls may be in flight: as many as the client may have connections to a server, but at most 50."""
    if is_cluster(client):
        most = client.nodes_manager.connection_kwargs.get("max_connections")
    else:
        most = getattr(client.connection_pool, "max_connections", None)
    return min(_MOST_CONNECTIONS, most or _MOST_CONNECTIONS)


def options_of(client: Any, call: Call) -> dict[str, Any]:
    """Return the options of ``execute_command`` for a call."""
    if is_cluster(client):  # otherwise redis-py would ask the server which arguments are keys
        return {**BYTES, "target_nodes": client.get_node_from_key(call.key)}
    return BYTES


def time_out(client: Any) -> float:
    """Return how long (s) the client waits for a reply."""
    of = client.nodes_manager if is_cluster(client) else client.connection_pool
    return getattr(of, "connection_kwargs", {}).get("socket_timeout") or math.inf


def queued(client: Any, commands: Iterable[Call]) -> Any:
    """Return a pipeline with these commands."""
    pipeline = client.pipeline(transaction=False)
    for each in commands:
        pipeline.execute_command(*each.command, **options_of(client, each))
    return pipeline


def node_of(client: Any, call: Call) -> str | None:
    """Return the name of the node that a call goes to, "" if no node has the key at present, or None for a single server."""
    if not is_cluster(client):
        return None
    with suppress(redis.exceptions.RedisClusterException):
        return str(client.get_node_from_key(call.key).name)
    return ""


def no_turn() -> redis.TimeoutError:
    """Return the error of a call that has waited too long for its turn."""
    return redis.TimeoutError("no connection was free in time: all of them wait for a reply")


def redis_error(error: BaseException) -> Exception:
    """Return the redis-py error for an exception that redis-py has raised. Re-raise anything else, such as an interrupt."""
    # A traceback would refer to the caller's frame, and so keep the store alive.
    if isinstance(error, Exception):
        known = as_redis_error(error)
        if isinstance(known, redis.RedisError):
            return known.with_traceback(None)
    if isinstance(error, TimeoutError):
        return redis.TimeoutError("no reply in time")
    # redis-py raises a TypeError if it polls a socket that was closed meanwhile. Other TypeErrors come from wrong options.
    if isinstance(error, UnicodeEncodeError):  # a text that can't be sent
        raise error
    if isinstance(error, _BROKEN) or (isinstance(error, TypeError) and "fileno" in str(error)):
        return redis.ConnectionError(f"disconnected while in use ({error})")
    raise error
