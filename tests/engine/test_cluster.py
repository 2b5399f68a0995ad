"""Clusters and Sentinels whose masters die, calls to several nodes at once, and servers that are too old."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import sleep, time
from typing import Any

import pytest
import redis

from tbloom import ServerTooOld, TimeBloom
from tbloom.bloom.hasher import digest, shard_of
from tbloom.engine.client import RETRY_FOR_FAILOVER
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Make, missing, needed

# (Error rate 1e-9, so that a false positive doesn't pass for a lost item.)
PARAMETERS: Any = {"capacity": 250_000, "error_rate": 1e-9, "slices": 2, "shards": 12}


def _offer(seen: TimeBloom, order: list[int]) -> list[tuple[int, float]]:
    """Add the items, some singly, most in batches of about 50. Return the new ones, with the time at which each call ended."""
    new = []
    for start in range(0, len(order), 50):
        some = order[start : start + 50]
        answers = [seen.add(f"item {n}") for n in some[:5]]
        answers += seen.add_many(f"item {n}" for n in some[5:])
        new += [(n, time()) for n, is_new in zip(some, answers, strict=True) if is_new]
    return new


def _replicated(port: int) -> float:
    """Return a time until which the replica has all changes of the master at this port."""
    moment = time()
    with redis.Redis(port=port, socket_timeout=None) as client:
        pipeline = client.pipeline(transaction=False)  # WAIT is about the connection's last command
        assert pipeline.ping().wait(1, 0).execute() == [True, 1]
    return moment


def _offer_while_a_master_dies(
    seen: TimeBloom, port: int, kill: Callable[[], None], shards: range
) -> None:
    """Add 8,000 items from each of 4 threads. Half-way, kill the master at this port, and promote its replica.

    Each item was new once, but for those whose writes died with the master: Redis replicates asynchronously, so an answer may
    get out before the write behind it reaches the replica. Such an item, of this master's shards, may be new twice.
    """
    items = range(8000)
    seen._retry_for = 600  # a machine may stand still for longer
    with ThreadPoolExecutor(4) as threads:
        orders = [random.Random(seed).sample(items, len(items)) for seed in range(4)]
        offers = [threads.submit(_offer, seen, order) for order in orders]
        while seen.info().items < len(items) / 2:
            sleep(0.01)
        replicated = _replicated(port)
        kill()
        new = [each for offer in offers for each in offer.result()]
    ends = defaultdict[int, list[float]](list)
    for item, ended in new:
        ends[item].append(ended)
    assert {*items} == ends.keys()
    twice = {item: times for item, times in ends.items() if times[1:]}
    print(f"{len(twice)} of {len(items)} items were new to the master that died, and once more")
    for item, times in twice.items():
        assert len(times) == 2
        assert min(times) >= replicated
        assert shard_of(digest(b"item %d" % item), PARAMETERS["shards"]) in shards


def test_a_batch_takes_one_round_trip_per_node(cluster: servers.Cluster, name: str) -> None:
    """With 12 shards on 3 masters, each master gets the calls of its shards in one pipeline, and no other command."""
    with TimeBloom.from_url(cluster.url, name, capacity=10_000, shards=12) as seen:
        seen.add_many(map(str, range(500)))
        masters = cluster.masters()
        for master in masters:
            master.config_resetstat()
        assert all(seen.add_many(map(str, range(500, 1000))))
    inside_scripts = (
        "mget get set time getbit getrange setrange hget hmget hset hdel hrandfield pexpireat pttl"
    )
    # (Redis 6.2 counts no subcommands.)
    ours = {"config", "config|resetstat", "client|setinfo", "hello", "info"}
    calls = 0
    for master in masters:
        stats = master.info("commandstats")
        sent = {command.removeprefix("cmdstat_") for command in stats}
        assert {"evalsha"} == sent - {*inside_scripts.split()} - ours
        calls += stats["cmdstat_evalsha"]["calls"]
    # Not 4 each: at the border between two masters, a shard's tag may have a slot of its neighbour.
    assert 12 == calls


async def test_by_default_shards_are_spread_evenly_over_masters(
    make: Make, cluster: servers.Cluster
) -> None:
    """The first client chooses it. (Later clients adopt the stored number: bloom/test_filter.py.)"""
    first = make(url=cluster.url)
    assert await first.add("a") is True
    assert (await first.info()).shards % 3 == 0
    assert await make(url=cluster.url).add("a") is False


def test_each_item_is_new_once_though_a_sentinels_master_dies(name: str) -> None:
    binary = needed()
    with (
        LocalRedis(binary) as master,
        servers.replica(binary, master) as replica,
        servers.sentinel(master) as port,
        redis.Sentinel([("127.0.0.1", port)]).master_for("main") as client,
    ):
        seen = TimeBloom(client, name, **{**PARAMETERS, "shards": 1})
        assert seen._retry_for == RETRY_FOR_FAILOVER

        def kill() -> None:
            with redis.Redis(port=port) as watching:
                watching.sentinel_set("main", "down-after-milliseconds", 500)
            master.kill()

        _offer_while_a_master_dies(seen, master.port, kill, range(12))
        assert replica.info("replication")["role"] == "master"


@pytest.mark.check
def test_items_are_new_once_though_a_clusters_master_dies(name: str) -> None:
    """The third master dies, which has the last 4 of 12 shards. (contract/test_servers.py moves slots.)"""
    with servers.Cluster(needed(), replicas=True) as cluster:
        third = cluster.masters()[2]
        port, kill = third.get_connection_kwargs()["port"], partial(cluster.kill, third)
        with TimeBloom.from_url(cluster.url, name, **PARAMETERS) as seen:
            _offer_while_a_master_dies(seen, port, kill, range(8, 12))


def test_a_server_older_than_redis_6_2_is_refused(name: str) -> None:
    if not servers.OLD_BINARY:
        missing("An old server (TBLOOM_TEST_OLD_REDIS: path of a redis-server before 6.2)")
    with servers.local(servers.OLD_BINARY, protocol=2) as client:
        with pytest.raises(
            ServerTooOld, match=r"needs Redis 6\.2 or later.*this server is 5\.0\.6"
        ):
            TimeBloom(client, name).add("a")
        assert [] == client.keys()


@pytest.mark.check
def test_any_node_that_keeps_nothing_is_told(name: str) -> None:
    cluster = servers.Cluster(needed())
    cluster._nodes[2].saves = False
    with cluster, TimeBloom.from_url(cluster.url, name, shards=3) as seen:
        assert seen.info().unsaved_since
