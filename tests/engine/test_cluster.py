"""Clusters and Sentinels: slots move, masters die, scripts get lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from time import sleep, time
from typing import Any, NamedTuple

import pytest
import redis
from redis.sentinel import Sentinel

from tbloom import DistinctCounter, ExactFilter, TimeBloom
from tbloom.bloom.hasher import digest, shard_of
from tbloom.engine.client import RETRY_FOR_FAILOVER
from tbloom.engine.keys import Keys, slot
from tests.helpers import servers
from tests.helpers.killable import again_and_again
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Make, cluster_needed

SPAWN = multiprocessing.get_context("spawn")
# (Error rate 1e-9, so that a false positive doesn't pass for a lost item.)
PARAMETERS: Any = {"capacity": 250_000, "error_rate": 1e-9, "slices": 2, "shards": 12}
MOVING_SLOTS = 40


@pytest.fixture
def moving_name(name: str) -> str:
    """A name whose first shard lies in one of the slots that move."""
    names = (f"{name}-{i}" for i in count())
    return next(
        name
        for name in names
        if slot(Keys(name, 12).config(0).partition("}")[0][1:]) < MOVING_SLOTS
    )


class _Mover:
    """Moves the first slots of the first master to the second, or back."""

    def __init__(self, cluster: servers.Cluster) -> None:
        self._cluster = cluster
        self._ends = cluster.masters()[:2]
        self._is_whole = True
        self.moves = 0

    def __call__(self) -> None:
        self._is_whole = self._move() if self._is_whole else self._fix()

    def _move(self) -> bool:
        with suppress(subprocess.SubprocessError):  # redis-cli wants to see all masters
            self._cluster.reshard(*self._ends, MOVING_SLOTS)
            self._ends.reverse()
            self.moves += 1
            return True
        return False

    def _fix(self) -> bool:
        sleep(0.2)
        with suppress(subprocess.SubprocessError):
            self._cluster.fix()
            return True
        return False


class _Claim(NamedTuple):
    """An item that was new, and the time of the call."""

    item: int
    began: float
    ended: float


def _offer(seen: TimeBloom, order: list[int], size: int) -> list[_Claim]:
    """Adds the items, some singly, most in batches of about ``size``."""
    claims = []
    for start in range(0, len(order), size):
        some, began = order[start : start + size], time()
        answers = [seen.add(f"item {n}") for n in some[:5]]
        answers += seen.add_many(f"item {n}" for n in some[5:])
        ended = time()
        claims += [_Claim(n, began, ended) for n, new in zip(some, answers, strict=True) if new]
    return claims


def _offer_from_a_process(url: str, name: str, items: int, seed: int, claims: Any) -> None:
    """First the one half of the items, then the other, each in an order of its own."""
    os.nice(10)  # the servers come first
    rng, half = random.Random(seed), items // 2
    order = [*rng.sample(range(half), half), *rng.sample(range(half, items), half)]
    with TimeBloom.from_url(url, name, **PARAMETERS) as seen:
        claims.put(_offer(seen, order, 500))


def _replicated(port: int) -> float:
    """A time; the replica has all that the master at this port had answered by then."""
    moment = time()
    with redis.Redis(port=port, socket_timeout=None) as client:
        pipeline = client.pipeline(transaction=False)  # WAIT is about the connection's last command
        assert pipeline.ping().wait(1, 0).execute() == [True, 1]
    return moment


def _assert_only_unreplicated_items_were_new_twice(
    claims: list[_Claim], items: int, replicated: float, shards: range = range(1)
) -> None:
    """Each item was new once, but for those whose writes died with the master.

    Redis replicates asynchronously: an answer may get out before the write behind it reaches the
    replica. So an item may be new again that the dead master (of these shards) called new after
    ``replicated``.
    """
    by_item = defaultdict(list)
    for claim in claims:
        by_item[claim.item].append(claim)
    assert set(range(items)) == by_item.keys()
    twice = [sorted(some, key=lambda claim: claim.ended) for some in by_item.values() if some[1:]]
    print(f"{len(twice)} of {items} items were new to the master that died, and once more")
    for first, *_ in twice:
        assert first.ended >= replicated
        assert shard_of(digest(b"item %d" % first.item), shards.stop) in shards
    assert max(map(len, twice), default=1) <= 2


@pytest.mark.check
def test_each_item_is_new_once_while_slots_move_and_a_master_dies(moving_name: str) -> None:
    """4 processes offer 80,000 items each; the third master is killed while new ones pour in."""
    items, queue = 80_000, SPAWN.Queue()
    with servers.Cluster(cluster_needed(), replicas=True) as cluster:
        masters = cluster.masters()
        arguments = [(cluster.url, moving_name, items, seed, queue) for seed in range(4)]
        processes = [
            SPAWN.Process(target=_offer_from_a_process, args=each, daemon=True)
            for each in arguments
        ]
        for process in processes:
            process.start()
        mover = _Mover(cluster)
        with (
            TimeBloom.from_url(cluster.url, moving_name, **PARAMETERS) as seen,
            again_and_again(mover),
        ):
            while seen.info().items < 0.55 * items:
                sleep(0.1)
            before, replicated = (
                mover.moves,
                _replicated(masters[2].get_connection_kwargs()["port"]),
            )
            cluster.kill(masters[2])
            while mover.moves == before:  # slots move again once a replica has taken over
                sleep(0.1)
            claims = [claim for _ in processes for claim in queue.get()]
            for process in processes:
                process.join()
        assert before >= 2
        _assert_only_unreplicated_items_were_new_twice(claims, items, replicated, range(8, 12))


def test_a_batch_is_one_trip_per_node(cluster: servers.Cluster, name: str) -> None:
    """12 shards on 3 masters: each master gets its 4 calls in one go, and no other command."""
    with TimeBloom.from_url(cluster.url, name, capacity=10_000, shards=12) as seen:
        seen.add_many(map(str, range(500)))
        masters = cluster.masters()
        for master in masters:
            master.config_resetstat()
        assert all(seen.add_many(map(str, range(500, 1000))))
    inside_scripts = {
        "mget",
        "get",
        "set",
        "time",
        "getbit",
        "getrange",
        "setrange",
        "bitfield",
        "bitfield_ro",
        "pexpireat",
    }
    inside_scripts |= {"pttl"}
    ours = {"config|resetstat", "client|setinfo", "hello", "info"}
    for master in masters:
        stats = master.info("commandstats")
        sent = {command.removeprefix("cmdstat_") for command in stats}
        assert {"evalsha"} == sent - inside_scripts - ours
        assert 4 == stats["cmdstat_evalsha"]["calls"]


async def test_without_a_number_the_shards_are_a_multiple_of_the_masters(
    make: Make, cluster: servers.Cluster
) -> None:
    """The first client chooses. (Later ones take what is stored: bloom/test_shards.py.)"""
    first = make(url=cluster.url)
    assert await first.add("a") is True
    assert (await first.info()).shards % 3 == 0
    assert await make(url=cluster.url).add("a") is False


async def test_an_error_of_our_own_code_is_raised_as_it_is(
    make: Make, cluster: servers.Cluster, url: str
) -> None:
    """At once, and not as an outage."""

    def broken() -> Any:
        yield ["what is no call"]

    for address in (url, cluster.url):
        seen = make(url=address)
        assert await seen.add("a")
        with pytest.raises(AttributeError, match="'str' object has no attribute"):
            await seen.run(broken())


@pytest.mark.parametrize("ours", [TimeBloom, ExactFilter, DistinctCounter])
def test_a_cluster_that_no_client_reaches_is_redis_pys_error(ours: Any) -> None:
    """At once, because redis-py asks for the nodes when a client is made."""
    with pytest.raises(redis.ConnectionError, match="Cluster"):
        ours.from_url("redis+cluster://127.0.0.1:1", "news")


def test_each_item_is_new_once_though_a_sentinels_master_dies(name: str) -> None:
    """4 threads offer 8,000 items each; the replica is put in the master's place."""
    items, binary = range(8000), cluster_needed()
    with (
        LocalRedis(binary) as master,
        servers.replica(binary, master) as replica,
        servers.sentinel(master) as port,
        Sentinel([("127.0.0.1", port)]).master_for("main") as client,
    ):
        seen = TimeBloom(client, name, **{**PARAMETERS, "shards": 1})
        assert seen._retry_for == RETRY_FOR_FAILOVER
        seen._retry_for = 600  # a machine may stand still for longer
        with ThreadPoolExecutor(4) as threads:
            orders = [random.Random(seed).sample(items, len(items)) for seed in range(4)]
            offers = [threads.submit(_offer, seen, order, 50) for order in orders]
            while seen.info().items < len(items) / 2:
                sleep(0.01)
            replicated = _replicated(master.port)
            master.process.kill()
            claims = [claim for each in offers for claim in each.result()]
        assert replica.info("replication")["role"] == "master"
        _assert_only_unreplicated_items_were_new_twice(claims, len(items), replicated)
