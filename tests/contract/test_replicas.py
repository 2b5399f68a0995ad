"""With ``replicas=n`` an answer "new" is given once n replicas have it: new once across a failover."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis

from tbloom import Claim, NotReplicated, TimeBloom
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.proxy import Proxy
from tests.helpers.stores import BLOOM, EXACT

#: A time limit for replies by which WAIT ends soon.
SOON = "?socket_timeout=0.4"
TIMEOUT = 0.2


@contextmanager
def paused(*nodes: redis.Redis) -> Iterator[None]:
    """Replicas that stand still."""
    processes = [int(node.info("server")["process_id"]) for node in nodes]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.fixture
def pair(binary: str) -> Iterator[tuple[LocalRedis, redis.Redis]]:
    """A master, and a client of its replica."""
    with LocalRedis(binary) as master, servers.replica(binary, master) as replica:
        yield master, replica


STORES = {
    "TimeBloom": BLOOM.awaited,
    "AsyncTimeBloom": partial(BLOOM.awaited, driver="async"),
    "ExactFilter": EXACT.awaited,
    "AsyncExactFilter": partial(EXACT.awaited, driver="async"),
    "a client of the caller's own": partial(BLOOM.awaited, callers=True),
}


async def until_replicated(ask: Callable[[], Any]) -> Any:
    """The answer once the replica has caught up."""
    while True:
        with suppress(NotReplicated):
            return await ask()


@pytest.mark.parametrize("store", STORES)
async def test_an_item_is_new_once_the_replica_has_it(store: str, pair: Any, name: str) -> None:
    master, replica = pair
    seen = STORES[store](master.url + SOON, name, replicas=1)
    answers = await until_replicated(lambda: seen.add_many(["a", "b", "a"]))
    assert answers == [True, True, False]
    assert await until_replicated(lambda: seen.add("c"))
    with paused(replica):
        assert not await seen.add("a")  # the master says so
        for _ in range(2):
            with pytest.raises(NotReplicated) as caught:
                await seen.add("d")
        with pytest.raises(NotReplicated):
            await seen.add_many(["a", "d", "e", "f"])
    error = caught.value
    assert (error.name, error.replicas, error.copies, error.timeout) == (name, 1, 0, TIMEOUT)
    assert str(error) == f"{name!r}: 0 of 1 replicas have the answer after 0.2 s"
    assert await until_replicated(lambda: seen.add("d")) is True
    answers = await until_replicated(lambda: seen.add_many(["d", "e", "f", "a"]))
    assert answers == [False, True, True, False]
    assert not await seen.add("e")
    with TimeBloom.from_url(master.url + SOON, f"{name}2", replicas=2) as two:
        with pytest.raises(NotReplicated, match="of 2 replicas"):
            two.add("a")
        assert not two.contains("b")


class Recorder(Proxy):
    """Keeps what clients send."""

    def __init__(self, url: str) -> None:
        super().__init__(url, lambda _: None)
        self.requests: list[bytes] = []

    def _pick(self, data: bytes) -> None:
        self.requests.append(data)


@pytest.mark.parametrize("store", STORES)
async def test_waiting_for_replicas_takes_one_round_trip(store: str, pair: Any, name: str) -> None:
    with Recorder(pair[0].url) as proxy:
        seen = STORES[store](proxy.url, name, replicas=1)
        assert await seen.add("a")  # loads the script
        proxy.requests.clear()
        assert await seen.add("b")
        [request] = proxy.requests
        assert (request.count(b"EVALSHA"), request.count(b"WAIT")) == (1, 1)
        assert not await seen.contains("c")
        assert b"WAIT" not in proxy.requests[-1]
        await seen.aclose()


async def test_claims_and_commits_wait_for_replicas_too(pair: Any, name: str) -> None:
    master, replica = pair
    seen = BLOOM.awaited(master.url + SOON, name, replicas=1)
    assert await until_replicated(partial(seen.claim, "a")) is Claim.NEW
    with paused(replica):
        for verb, given in ((seen.claim, "b"), (seen.commit, "a"), (seen.import_many, ["c"])):
            with pytest.raises(NotReplicated):
                await verb(given)
    await until_replicated(partial(seen.commit, "a"))
    assert await until_replicated(partial(seen.claim, "b")) is Claim.NEW
    assert await seen.claim_many(["a", "b"]) == [Claim.SEEN, Claim.BUSY]
    await seen.aclose()


async def test_no_answer_new_is_lost_by_a_failover(binary: str, pair: Any, name: str) -> None:
    """A replica is promoted while the master goes on, which then is killed with -9."""
    master, replica = pair
    port, items = replica.connection_pool.connection_kwargs["port"], [*map(str, range(200))]
    with (
        LocalRedis(binary, "--replicaof", "127.0.0.1", str(port)),  # of the next master
        Proxy(master.url, lambda _: None) as proxy,
    ):
        seen = BLOOM.awaited(proxy.url + SOON, name, replicas=1)
        for item in items[:100]:
            assert await until_replicated(partial(seen.add, item))
        replica.execute_command("REPLICAOF", "NO", "ONE")
        for item in items[100:102]:
            with pytest.raises(NotReplicated):
                await seen.add(item)
        master.process.kill()
        master.process.wait()
        proxy.lead_to(f"redis://127.0.0.1:{port}/0")
        answers = await until_replicated(lambda: seen.add_many(items))
        assert answers == [False] * 100 + [True] * 100
        assert not any(await seen.add_many(items))
        await seen.aclose()


@pytest.mark.check
@pytest.mark.parametrize("store", ["TimeBloom", "AsyncTimeBloom"])
async def test_a_node_of_a_cluster_waits_for_its_own_replica(store: str, name: str) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(servers.Cluster(needed(), replicas=True))
        masters = cluster.masters()
        known = [master.info("replication")["slave0"] for master in masters]
        replicas = [stack.enter_context(redis.Redis(port=node["port"])) for node in known]
        seen = STORES[store](cluster.url + SOON, name, replicas=1, shards=6)
        items = [str(number) for number in range(200)]
        assert await until_replicated(lambda: seen.add_many(items)) == 200 * [True]
        with paused(*replicas):
            with pytest.raises(NotReplicated, match="0 of 1 replicas"):
                await seen.add_many([*items, "a", "b", "c"])
            assert await seen.contains_many(items) == 200 * [True]
        further = [*items, "a", "b", "c"]
        answers = await until_replicated(lambda: seen.add_many(further))
        assert answers == [*(200 * [False]), True, True, True]
        await seen.aclose()
