"""Each store on every kind of server and client, and on clusters."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from typing import Any

import pytest
import redis

from tbloom.engine.keys import Keys, slot
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis
from tests.helpers.stores import BLOOM, DISTINCT, EVERY_VERB, EXACT, Store

MOVING_SLOTS = 20


def _client(url: str, *, decode: bool, protocol: int, hiredis: bool) -> redis.Redis:
    options: dict[str, Any] = {"decode_responses": decode, "protocol": protocol}
    if not hiredis:
        from redis import _parsers  # noqa: PLC0415 - redis-py has no public name for them

        options["parser_class"] = {2: _parsers._RESP2Parser, 3: _parsers._RESP3Parser}[protocol]
    return redis.Redis(connection_pool=redis.ConnectionPool.from_url(url, **options))


CLIENTS = [*product((False, True), (2, 3), (False, True))]
#: Two that differ in everything are all that `make test` has.
FEW = [each for each in CLIENTS if each[0] == (each[1] == 3) != each[2]]


@pytest.mark.parametrize(
    ("decode", "protocol", "hiredis"),
    [pytest.param(*each, marks=() if each in FEW else pytest.mark.check) for each in CLIENTS],
)
def test_every_verb_on_every_server_by_every_client(
    store: Store, server: LocalRedis, name: str, *, decode: bool, protocol: int, hiredis: bool
) -> None:
    with _client(server.url, decode=decode, protocol=protocol, hiredis=hiredis) as client:
        for shards in (1, 3) if store.sharded else (1,):
            EVERY_VERB[store](client, f"{name}-{shards}", shards)


def test_every_verb_on_a_cluster(store: Store, cluster: servers.Cluster, name: str) -> None:
    """Counters that share a mapping are on one master, with the mapping."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster.port) as client:
        EVERY_VERB[store](client, name, 6)
        held = [len(master.keys(f"{{{name}}}*")) for master in cluster.masters()]
        assert store is not DISTINCT or [0, 0] == sorted(held)[:2]


def _in_a_slot_that_moves(store: Store, name: str) -> str:
    """A name with a key in one of the first slots."""
    shards = 6 if store.sharded else 1
    names = (f"{name}-{i}" for i in count())
    return next(
        name
        for name in names
        if slot(Keys(name, shards).config(0)[1:].split("}")[0]) < MOVING_SLOTS
    )


@pytest.mark.parametrize(
    "store",
    [BLOOM, *(pytest.param(each, marks=pytest.mark.check) for each in (EXACT, DISTINCT))],
    ids=str,
    indirect=True,
)
def test_nothing_is_lost_while_slots_move(
    store: Store, driver: str, cluster: servers.Cluster, name: str
) -> None:
    """The store's among them, from the first master to the second and back, while two threads add."""
    one, two = cluster.masters()[:2]
    name = _in_a_slot_that_moves(store, name)
    shards = {"shards": 6} if store.sharded else {}
    done, new = threading.Event(), [0, 0]
    offered = [f"{name} {i}" for i in range(1000)]

    async def add(seed: int) -> None:
        rng, seen = random.Random(seed), store.awaited(cluster.url, name, driver=driver, **shards)
        for item in rng.sample(offered, len(offered)):
            new[seed] += await seen.add(item)
        while not done.is_set():
            assert not any(await seen.add_many(rng.sample(offered, 200)))
        await seen.aclose()

    with ThreadPoolExecutor(2) as threads:
        adding = [threads.submit(asyncio.run, add(seed)) for seed in range(2)]
        try:
            cluster.reshard(one, two, MOVING_SLOTS)
            cluster.reshard(two, one, MOVING_SLOTS)
        finally:
            done.set()
        for job in adding:
            job.result()
    with store.open(cluster.url, name, **shards) as seen:
        assert len(offered) == sum(new) == store.held(seen)
        assert not any(seen.add_many(offered))
