"""The stores on a server, each by its adapter, so that one test runs on all of them; and every verb of each, with what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
import redis.asyncio
from pyroaring import BitMap

from tbloom import AsyncTimeBloom, Claim, History, TimeBloom
from tbloom.claims.flows import bury
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers import contents
from tests.helpers.account import PARAMETERS, Account
from tests.helpers.making import awaited


@dataclass(frozen=True, eq=False)
class Store:
    """One kind of store; ``parameters``: with which an account of 200,000 items is exact."""

    kind: str
    sync: Any
    aio: Any
    #: What this kind calls ``shards``; a mapping of counters has none.
    sharded: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.kind

    def open(
        self, url: str, name: str, *, driver: str = "sync", callers: bool = False, **parameters: Any
    ) -> Any:
        """A client of the store of that name; of counters, of the one named ``one``.

        ``callers``: through a redis-py client of the caller's own.
        """
        if callers:
            library: Any = redis.asyncio if driver == "async" else redis
            return self.of_client(library.Redis.from_url(url), name, **parameters)
        made = self.aio if driver == "async" else self.sync
        return made.from_url(url, *self._names(name), **{**self.parameters, **parameters})

    def of_client(self, client: Any, name: str, **parameters: Any) -> Any:
        """The same, through this client."""
        made = self.sync if isinstance(client, redis.Redis) else self.aio
        return made(client, *self._names(name), **{**self.parameters, **parameters})

    def _names(self, name: str) -> tuple[str, ...]:
        return ("one", name) if self.kind == "distinct" else (name,)

    def awaited(self, url: str, name: str, *, driver: str = "sync", **parameters: Any) -> Any:
        """The same, with verbs that are awaited for both drivers."""
        made = self.open(url, name, driver=driver, **parameters)
        return made if driver == "async" else awaited(made)

    def held(self, seen: Any) -> int:
        """The number of items that it holds."""
        held: int = seen.count() if self.kind == "distinct" else seen.info().items
        return held

    def check(self, account: Account, url: str, name: str, **parameters: Any) -> None:
        """The account is exact, and the store holds its items and no others."""
        account.check_answers()
        if self.kind == "distinct":
            contents.check_mapping(url, name, {"one": account.offered})
            return
        with self.open(url, name, **parameters) as right:
            items = [*account.offered]
            assert all(right.contains_many(items))
            assert len(items) == right.info().items


BLOOM = Store("bloom", TimeBloom, AsyncTimeBloom, {"shards": 3}, PARAMETERS)
EXACT = Store("exact", ExactFilter, AsyncExactFilter, {"shards": 3})
DISTINCT = Store("distinct", DistinctCounter, AsyncDistinctCounter)
STORES = (BLOOM, EXACT, DISTINCT)


ITEMS = [*map(str, range(2000))]
MANY, FEW = [*map(str, range(5000))], [*map(str, range(4800, 5200))]


def verbs_of_a_bloom(client: Any, name: str, shards: int, **own: Any) -> None:
    """With slices that grow, claims of an ended session, and other parameters."""
    size: dict[str, Any] = {"capacity": 100, "shards": shards, **own}
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
        assert Claim.NEW is seen.claim("given", note="given")
        seen.note_history({"given": History(failures=1)})
        seen.leave_many(["given"])
        assert seen.push("pushed", "pushed")
        assert 2 == seen.fleet().look().pages.left
    with TimeBloom(client, name, **size) as seen:
        taken = [(note.text, note.failures) for _ in range(2) for note in seen.take().notes]
        assert [("given", 1), ("left behind", 0), ("pushed", 0)] == sorted(taken)
        seen.run(bury(seen.config, [0]))
        seen.clear()
        assert "a" not in seen


def verbs_of_an_exact_filter(client: Any, name: str, shards: int, **own: Any) -> None:
    """With buckets that are split, and items that expire."""
    seen, other = (ExactFilter(client, name, shards=shards, **own) for _ in range(2))
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


def verbs_of_counters(client: Any, mapping: str, _: int = 1, **own: Any) -> None:
    """With and without slices, and of integers; buckets that are split, and chunks of each form."""
    one, few = (DistinctCounter(client, name, mapping, **own) for name in ("one", "few"))
    days = DistinctCounter(client, "days", mapping, granularity="d", slices=3, **own)
    assert [False, *[True] * len(MANY)] == [not one.add("a"), *one.add_many(MANY)]
    assert all(few.add_many(FEW))
    assert all(days.add_many(FEW))
    assert [True] == days.add_many(["7"], at=datetime.now(UTC) - timedelta(days=1))
    assert ([True, False], False) == (days.contains_many(["7", "none"]), few.contains("7"))
    assert (5001, 400, 401) == (one.count(), few.count(), days.count())
    assert [400, 401] == [days.count(within=1), days.within(2).count()]
    assert (200, 5201, 5001) == (one.count_and(few), one.count_or(few), one.count_xor(few))
    assert [True, False] == few.discard_many(["5000", "none"])
    assert [True, False] == [few.discard("5001"), "5001" in few]
    info = days.info()
    assert (401, 5201, ()) == (info.count, info.members, info.warnings)
    assert 400 == days.slice(info.slices[-1].label).count()
    days.from_roaring(one.members().to_roaring())
    assert 5201 == days.count()
    few.clear()
    assert (0, 5001) == (few.count(), one.count())
    one.clear(mapping=True)
    assert (0, 0, 0) == (one.count(), days.count(), days.info().members)
    kept = DistinctCounter(client, "kept", mapping, keep_members=True, **own)
    assert kept.add("a")
    assert ["a"] == [*kept.members()]
    kept.clear(mapping=True)
    numbers = DistinctCounter(client, mapping, None, **own)
    for ids in (range(0, 20_000, 2), range(1, 20_000, 3), range(0, 300 * 65_536, 65_536)):
        numbers.from_roaring(BitMap(ids).serialize())
    assert numbers.discard(0)
    assert 300 < len(numbers.members().bitmap())
    numbers.clear()


EVERY_VERB = {BLOOM: verbs_of_a_bloom, EXACT: verbs_of_an_exact_filter, DISTINCT: verbs_of_counters}
