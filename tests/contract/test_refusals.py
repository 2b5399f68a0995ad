"""Servers that refuse to write (out of memory, without or as a replica, blocked), and servers that may drop keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tests.helpers import servers
from tests.helpers.account import Account, names
from tests.helpers.contents import contents, set_maxmemory
from tests.helpers.localredis import LocalRedis
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import Store

each_size = pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])


@each_size
async def test_without_memory_nothing_is_changed(
    store: Store, opened: Any, server: LocalRedis, name: str, size: int
) -> None:
    """What is seen is answered seen; what is new is refused, and is new once there is memory."""
    seen, account = opened(url=server.url), Account()
    await account.offer_async(seen, names(1000, "before"))
    before = contents(server.url)
    set_maxmemory(server, 1)
    try:
        for _ in range(3):
            with pytest.raises(OutOfMemoryError):
                await seen.add_many(names(size))
            with pytest.raises(OutOfMemoryError):
                await seen.add("item 0")
        await account.offer_async(seen, names(1000, "before"))
        assert before == contents(server.url)
    finally:
        set_maxmemory(server, 0)
    for _ in range(2):
        await account.offer_async(seen, names(size))
    store.check(account, server.url, name)


@pytest.mark.parametrize("sharded", [False, True])
async def test_memory_that_ends_in_the_middle_of_a_batch_loses_nothing(
    store: Store, opened: Any, server: LocalRedis, name: str, *, sharded: bool
) -> None:
    """A little more at a time: some calls of a batch are answered, others refused. (And each time more, because
    the calls that arrive together take memory too.)"""
    parameters = {
        **(store.sharded if sharded else {}),
        **({"capacity": 500} if store.parameters else {}),
    }
    held: list[int] = []
    with (
        redis.Redis.from_url(server.url) as client,
        store.open(server.url, name, **parameters) as right,
    ):

        def give_memory() -> None:
            held.append(store.held(right))
            more = 20_000 * (1 + account.repeats)
            client.config_set("maxmemory", client.info("memory")["used_memory"] + more)

        seen, account = opened(url=server.url, **parameters), Account(before_repeat=give_memory)
        try:
            give_memory()
            for batch in range(20):
                if any(items % 3000 for items in held):
                    break
                for _ in range(2):
                    items = names(3000, f"of {batch}")
                    await account.offer_async(seen, items, repeat_on=(OutOfMemoryError,))
        finally:
            set_maxmemory(server, 0)
    print(f"The numbers of items held when there was no more memory: {held[1:]}")
    assert any(items % 3000 for items in held)
    store.check(account, server.url, name, **parameters)


async def test_a_clear_that_is_refused_loses_no_pending_answer(
    store: Store, opened: Any, server: LocalRedis, name: str
) -> None:
    """Of batches that were added in part before there was no more memory, each item is new once, also if it is cleared."""
    parameters = {"capacity": 500} if store.parameters else {}
    seen, refused, in_part = opened(url=server.url, **parameters), list[str](), False
    await seen.add("before")
    with (
        redis.Redis.from_url(server.url) as client,
        store.open(server.url, name, **parameters) as right,
    ):
        try:
            for batch in range(40):
                items, held = names(3000, f"of {batch}"), store.held(right)
                set_maxmemory(server, client.info("memory")["used_memory"] + 2000 * batch)
                try:
                    await seen.add_many(items)
                except OutOfMemoryError:
                    refused += items
                if in_part := 0 < store.held(right) - held < 3000:
                    break
            set_maxmemory(server, 1)
            with suppress(OutOfMemoryError):
                await seen.clear()
        finally:
            set_maxmemory(server, 0)
    assert in_part
    assert [sum(await seen.add_many(refused)) for _ in range(2)] == [len(refused), 0]


@each_size
async def test_a_replica_changes_nothing_until_it_is_the_master(
    store: Store, opened: Any, server: LocalRedis, binary: str, name: str, *, size: int
) -> None:
    """It answers what is seen, and refuses what is new, which is new once it is promoted."""
    account = Account()
    await account.offer_async(opened(url=server.url), names(1000, "before"))
    with servers.replica(binary, server) as client:
        url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
        seen, before = opened(url=url, retry_for=0.1), contents(url)
        for _ in range(3):
            with pytest.raises(ReadOnlyError):
                await seen.add_many(names(size))
            with pytest.raises(ReadOnlyError):
                await seen.add("item 0")
        await account.offer_async(seen, names(1000, "before"))
        with store.open(url, name) as looking:
            assert 1000 == store.held(looking)
        assert before == contents(url)
        client.replicaof("NO", "ONE")
        for _ in range(2):
            await account.offer_async(seen, names(size))
        store.check(account, url, name)


async def test_a_late_copy_of_a_refused_call_is_executed_for_its_caller(
    store: Store, opened: Any, server: LocalRedis, binary: str, name: str
) -> None:
    """By a server that was a replica at first, and is promoted before the copy comes."""
    faults = list[Fault]()
    await opened(url=server.url).add("before")
    with servers.replica(binary, server) as client:
        port = client.connection_pool.connection_kwargs["port"]
        url = f"redis://127.0.0.1:{port}"
        with Proxy(url, lambda _: faults.pop() if faults else None, late=0.5) as proxy:
            seen = opened(url=proxy.url, retry_for=0)
            assert not await seen.add("before")
            faults.append(Fault.LATE_COPY)
            with pytest.raises(ReadOnlyError):
                await seen.add_many(["x", "y"])
            client.replicaof("NO", "ONE")
            with store.open(url, name) as looking:
                while not looking.contains("x"):  # noqa: ASYNC110 - the server tells of no event
                    await asyncio.sleep(0.01)
            assert await seen.add_many(["x", "y"]) == [True, True]


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


@contextmanager
def without_replicas(server: LocalRedis) -> Iterator[Callable[[], None]]:
    """A server that refuses to write because it has no replica; yields what ends that."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            yield lambda: client.config_set("min-replicas-to-write", 0)
        finally:
            client.config_set("min-replicas-to-write", 0)


async def test_a_server_that_refuses_all_calls_for_a_while_is_waited_for(
    store: Store, opened: Any, server: LocalRedis, name: str
) -> None:
    """By ``retry_for``: the call is sent again until it is answered, or ends in an error and has changed nothing."""
    account, sizes = Account(), (1, 300)
    hasty, seen = (opened(url=server.url, retry_for=seconds) for seconds in (0.1, 60))
    await account.offer_async(hasty, names(1000, "before"))
    before = contents(server.url)
    with without_replicas(server) as end, ThreadPoolExecutor(1) as thread:
        for size in sizes * 2:
            with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
                await hasty.add_many(names(size, f"of {size}"))
        assert before == contents(server.url)

        def end_later() -> None:
            sleep(0.3)
            end()

        ending = thread.submit(end_later)
        await account.offer_async(seen, names(300))
        ending.result()
    await account.offer_async(seen, names(300))
    for size in sizes * 2:
        await account.offer_async(hasty, names(size, f"of {size}"))
    store.check(account, server.url, name)
