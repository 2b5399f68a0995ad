"""Servers that refuse to write (out of memory, as a replica, without one), and servers that may drop keys.

(Refusals in the middle of batches, of clears, and beside other faults: ``tests/simulation``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import sleep
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tests.helpers import servers
from tests.helpers.account import Account, names
from tests.helpers.contents import contents
from tests.helpers.localredis import LocalRedis
from tests.helpers.stores import Store

#: The URL of a server that refuses, and what ends that.
Refusing = Iterator[tuple[str, Callable[[], Any]]]


@contextmanager
def without_memory(server: LocalRedis, _: str) -> Refusing:
    yield from _with(server, "maxmemory")


@contextmanager
def without_replicas(server: LocalRedis, _: str) -> Refusing:
    yield from _with(server, "min-replicas-to-write")


def _with(server: LocalRedis, setting: str) -> Refusing:
    with redis.Redis.from_url(server.url) as client:
        client.config_set(setting, 1)
        try:
            yield server.url, partial(client.config_set, setting, 0)
        finally:
            client.config_set(setting, 0)


@contextmanager
def as_a_replica(server: LocalRedis, binary: str) -> Refusing:
    with servers.replica(binary, server) as client:
        port = client.connection_pool.connection_kwargs["port"]
        yield f"redis://127.0.0.1:{port}", partial(client.replicaof, "NO", "ONE")


@pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])
@pytest.mark.parametrize(
    ("refusing", "error"),
    [
        (without_memory, OutOfMemoryError),
        (as_a_replica, ReadOnlyError),
        (without_replicas, redis.ResponseError),
    ],
)
async def test_a_server_that_refuses_to_write_changes_nothing(
    store: Store,
    opened: Any,
    server: LocalRedis,
    binary: str,
    name: str,
    *,
    refusing: Any,
    error: type[Exception],
    size: int,
) -> None:
    """What is seen is answered seen; what is new is refused, and is new once it may be written."""
    account = Account()
    await account.offer_async(opened(url=server.url), names(1000, "before"))
    with refusing(server, binary) as (url, end):
        seen, before = opened(url=url, retry_for=0.1), contents(url)
        for _ in range(2):
            with pytest.raises(error):
                await seen.add_many(names(size))
            with pytest.raises(error):
                await seen.add("item 0")
        if refusing is not without_replicas:
            await account.offer_async(seen, names(1000, "before"))
        with store.open(url, name) as looking:
            assert 1000 == store.held(looking)
        assert before == contents(url)
        end()
        for _ in range(2):
            await account.offer_async(seen, names(size))
        store.check(account, url, name)


async def test_a_server_that_refuses_all_calls_for_a_while_is_waited_for(
    store: Store, opened: Any, server: LocalRedis, name: str
) -> None:
    """By ``retry_for``: the call is sent again until it is answered."""
    account, seen = Account(), opened(url=server.url, retry_for=60)
    await account.offer_async(seen, names(1000, "before"))
    with without_replicas(server, "") as (_, end), ThreadPoolExecutor(1) as thread:

        def end_later() -> None:
            sleep(0.3)
            end()

        ending = thread.submit(end_later)
        await account.offer_async(seen, names(300))
        ending.result()
    await account.offer_async(seen, names(300))
    store.check(account, server.url, name)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
async def test_a_server_that_drops_keys_is_warned_of(
    opened: Any, own: redis.Redis, policy: str
) -> None:
    own.config_set("maxmemory-policy", policy)
    own.config_set("maxmemory", 100_000_000)
    try:
        seen = opened(url=f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}")
        await seen.add("a")
        found = await seen.warnings()
        assert tuple(found) == (await seen.info()).warnings
    finally:
        own.config_set("maxmemory", 0)
        own.config_set("maxmemory-policy", "noeviction")
    assert (policy == "noeviction") == (not found)
    assert all(f"(maxmemory-policy {policy})" in warning for warning in found)
