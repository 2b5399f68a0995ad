"""Every verb of each store, with what it answers, for any kind of client."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import Keys
from tbloom.exact import ExactFilter
from tests.helpers.stores import BLOOM, DISTINCT, EXACT

ITEMS = [*map(str, range(2000))]
MANY, FEW = [*map(str, range(5000))], [*map(str, range(4800, 5200))]


def verbs_of_a_bloom(client: Any, name: str, shards: int) -> None:
    seen = TimeBloom(client, name, capacity=1000, shards=shards)
    assert [True, False] == [seen.add("a"), seen.add("a")]
    assert [False, True] == seen.add_many(["a", "b"])
    assert ("a" in seen, seen.contains_many(["b", "c"])) == (True, [True, False])
    info = seen.info()
    assert (2, 0) == (info.items, info.slices[0].items)
    assert seen.keys()[-1].endswith(f":{info.slices[-1].label}")
    seen.clear()
    assert "a" not in seen
    configs = [Keys(name, shards).config(shard) for shard in range(shards)]
    for config in configs:
        client.rpush(config, "x")
    with pytest.raises(redis.ResponseError, match="holds a list"):
        seen.add("a")
    for config in configs:
        client.delete(config)


def verbs_of_an_exact_filter(client: Any, name: str, shards: int) -> None:
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


def verbs_of_counters(client: Any, mapping: str, _: int = 1) -> None:
    """Sorted ids, and bitmaps; buckets that are split; counters with and without slices."""
    one, other = (DistinctCounter(client, "one", mapping) for _ in range(2))
    few = DistinctCounter(client, "few", mapping)
    days = DistinctCounter(client, "days", mapping, granularity="d", slices=3)
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


EVERY_VERB = {BLOOM: verbs_of_a_bloom, EXACT: verbs_of_an_exact_filter, DISTINCT: verbs_of_counters}
