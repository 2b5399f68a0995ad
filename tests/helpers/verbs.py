"""Every verb of each store, with what it answers, for any kind of client."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from pyroaring import BitMap

from tbloom import Claim, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.exact import ExactFilter
from tests.helpers.stores import BLOOM, DISTINCT, EXACT

ITEMS = [*map(str, range(2000))]
MANY, FEW = [*map(str, range(5000))], [*map(str, range(4800, 5200))]


def verbs_of_a_bloom(client: Any, name: str, shards: int) -> None:
    """With slices that grow, claims of an ended session, and other parameters."""
    size: dict[str, Any] = {"capacity": 100, "shards": shards}
    with TimeBloom(client, name, **size) as seen:
        assert [True, False] == [seen.add("a"), seen.add("a")]
        new = seen.add_many(ITEMS[:300])
        assert 295 < sum(new) <= 300
        assert [True, False] == ["a" in seen, "b" in seen]
        assert all(seen.contains_many(ITEMS[:300]))
        info = seen.info()
        assert sum(new) + 1 == info.items == info.slices[-1].items
        assert info.slices[-1].parts > 1
        assert len(seen.keys()) == 7 * shards
        assert [] == seen.warnings()
        assert Claim.NEW is seen.claim("c", note="c")
        seen.commit("c")
        seen.release("d")
        assert Claim.NEW is seen.claim("left behind", note="left behind")
        assert Claim.NEW is seen.claim("abandoned", note="abandoned")
        seen.abandon_many(["abandoned"])
    with TimeBloom(client, name, **size) as seen:
        assert {"left behind", "abandoned"} == {*seen.take_over()}
    with TimeBloom(client, name, **{**size, "capacity": 1000}) as larger:
        larger.reconfigure()
        assert [False, True] == [larger.add("a"), larger.add("b")]
        larger.clear()
        assert "a" not in larger


def verbs_of_an_exact_filter(client: Any, name: str, shards: int) -> None:
    """With buckets that are split, and items that expire."""
    seen, other = (ExactFilter(client, name, shards=shards) for _ in range(2))
    assert [True, False] == [seen.add("a"), seen.add("a")]
    assert [False, *[True] * len(ITEMS)] == seen.add_many(["a", *ITEMS])
    assert not any(other.add_many(ITEMS))
    assert [True, False] == other.contains_many(["a", "b"])
    assert [True, False] == seen.discard_many(["7", "b"])
    assert ["7" in other, other.add("7")] == [False, True]
    info = seen.info()
    assert (len(ITEMS) + 1, 0, ()) == (info.items, info.dead, info.warnings)
    seen.clear()
    assert "a" not in other
    assert seen.add("b", ttl=0.001)
    while other.contains("b"):
        pass
    assert other.add("b", ttl=1)


def verbs_of_counters(client: Any, mapping: str, _: int = 1) -> None:
    """With and without slices, and of integers; buckets that are split, and chunks of each form."""
    one, few = (DistinctCounter(client, name, mapping) for name in ("one", "few"))
    days = DistinctCounter(client, "days", mapping, granularity="d", slices=3)
    assert [False, *[True] * len(MANY)] == [not one.add("a"), *one.add_many(MANY)]
    assert all(few.add_many(FEW))
    assert all(days.add_many(MANY))
    assert [True] == days.add_many(["7"], at=datetime.now(timezone.utc) - timedelta(days=1))
    assert ([True, False], False) == (days.contains_many(["7", "none"]), few.contains("7"))
    assert (5001, 400, 5000) == (one.count(), few.count(), days.count())
    assert 5000 == days.count(within=1) == days.within(2).count()
    assert (200, 5201, 5001) == (one.count_and(few), one.count_or(few), one.count_xor(few))
    assert [True, False] == few.discard_many(["5000", "none"])
    assert [True, False] == [few.discard("5001"), "5001" in few]
    info = days.info()
    assert (5000, 5201, ()) == (info.count, info.members, info.warnings)
    assert 5000 == days.slice(info.slices[-1].label).count()
    days.from_roaring(one.members().to_roaring())
    assert 5001 == days.count()
    few.clear()
    assert (0, 5001) == (few.count(), one.count())
    one.clear(mapping=True)
    assert (0, 0, 0) == (one.count(), days.count(), days.info().members)
    kept = DistinctCounter(client, "kept", mapping, keep_members=True)
    assert kept.add("a")
    assert ["a"] == [*kept.everyone()] == [*kept.members()]
    kept.clear(mapping=True)
    numbers = DistinctCounter(client, mapping, None)
    for ids in (range(0, 20_000, 2), range(1, 20_000, 3), range(0, 300 * 65_536, 65_536)):
        numbers.from_roaring(BitMap(ids).serialize())
    assert numbers.discard(0)
    assert 300 < len(numbers.members().bitmap())
    numbers.clear()


EVERY_VERB = {BLOOM: verbs_of_a_bloom, EXACT: verbs_of_an_exact_filter, DISTINCT: verbs_of_counters}
