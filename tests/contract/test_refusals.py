"""Servers that refuse to write (out of memory, or a replica), and servers that may drop keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom.demo.localredis import LocalRedis
from tests.helpers import servers
from tests.helpers.account import Account, names
from tests.helpers.contents import contents, set_maxmemory
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


@each_size
async def test_a_replica_changes_nothing_until_it_is_the_master(
    store: Store, opened: Any, server: LocalRedis, binary: str, name: str, *, size: int
) -> None:
    """It answers what is seen, and refuses what is new, which is new once it is promoted."""
    account = Account()
    await account.offer_async(opened(url=server.url), names(1000, "before"))
    with servers.replica(binary, server) as client:
        url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
        seen, before = opened(url=url), contents(url)
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


@each_size
async def test_while_another_script_blocks_the_server_nothing_is_changed(
    store: Store, opened: Any, server: LocalRedis, name: str, size: int
) -> None:
    """Once it has run for lua-time-limit, the server refuses all other calls."""
    seen, account = opened(url=server.url), Account()
    await account.offer_async(seen, names(1000, "before"))
    with (
        redis.Redis.from_url(server.url) as client,
        redis.Redis.from_url(server.url, socket_timeout=None) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        client.config_set("lua-time-limit", 1)
        blocking = thread.submit(other.eval, "while true do end", 0)
        try:
            with pytest.raises(redis.ResponseError, match="BUSY"):
                all(iter(client.ping, None))  # until it raises
            with pytest.raises(redis.ResponseError, match="BUSY"):
                await seen.add_many(names(size))
        finally:
            client.script_kill()
            with pytest.raises(redis.ResponseError):
                blocking.result()
            client.config_set("lua-time-limit", 5000)
    for _ in range(2):
        await account.offer_async(seen, names(size))
    store.check(account, server.url, name)
