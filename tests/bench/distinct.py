"""Exact distinct counts beside a plain bitmap, a SET of ids and HyperLogLog: memory, and what each verb costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import redis
from chunkforms import chunk_forms
from idsets import (
    CHUNK,
    Dense,
    Given,
    Scenario,
    bitmap,
    bytes_in_hash,
    check_written,
    clustered,
    dense,
    give,
    sparse,
    write,
)
from race import check
from serving import APART, Cost, measure, medians, placed
from streams import BATCH

from tbloom.cli.localredis import LocalRedis
from tbloom.distinct import DistinctCounter

COUNTER, BITMAP, SET, HYPERLOGLOG = "DistinctCounter", "a bitmap", "a SET", "HyperLogLog"
VERBS = "count", "and", "or", "xor"
#: So many ids go out at once where a contender is filled.
AT_ONCE = 10_000
#: A round asks so often, or as often as this many seconds allow.
CALLS, SECONDS = 20, 0.02


def operands(
    scenario: Scenario, bits: Dense | None
) -> list[tuple[str, Sequence[int], bytes | None]]:
    """Both sets' names, ids, and bitmaps if there are such."""
    written = bits or (None, None)
    return [("a", scenario.a, written[0]), ("b", scenario.b, written[1])]


class Counts:
    """Two sets of ids in one of the contenders' ways."""

    name: str
    #: What it may be asked, and how; the answers are exact unless said otherwise.
    verbs: dict[str, Callable[[], int]]
    is_exact = True

    def __init__(self, url: str) -> None:
        self.server = redis.Redis.from_url(url)

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        """Takes both sets in; ``bits``: the same as bitmaps, where there are too many to add."""
        raise NotImplementedError

    def item(self, number: int) -> Any:
        """What is added for an id."""
        return number

    def add(self, item: Any) -> Any:
        """To the first set. Whether it is new there."""
        raise NotImplementedError

    def add_many(self, items: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError

    def own_keys(self) -> list[str]:
        """Those of the first set."""
        return [f"{self.name} a"]

    def close(self) -> None:
        self.server.unlink(f"{self.name} a", f"{self.name} b", f"{self.name} both")
        self.server.close()

    def _both(self, *commands: tuple[Any, ...]) -> list[Any]:
        with self.server.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()


class OurCounts(Counts):
    name = COUNTER

    def __init__(self, url: str, names: dict[int, str]) -> None:
        super().__init__(url)
        self.names = names
        self.a, self.b = (DistinctCounter.from_url(url, name) for name in "ab")
        self.verbs = {
            "count": self.a.count,
            **{verb: self._two(getattr(self.a, f"count_{verb}")) for verb in VERBS[1:]},
        }
        self.add, self.add_many = self.a.add, self.a.add_many  # type: ignore[method-assign]

    def _two(self, count: Callable[..., int]) -> Callable[[], int]:
        return lambda: count(self.b)

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        for name, ids, written in operands(scenario, bits):
            counter = getattr(self, name)
            if written is not None:
                write(self.server, counter, written)
            else:
                assert all(counter.add_many(self.names[number] for number in ids))

    def item(self, number: int) -> str:
        return self.names[number]

    def own_keys(self) -> list[str]:
        keys = self.a.config.keys
        chunks = [keys.bitmap("a", "all", chunk) for chunk in range(2**32 // CHUNK // 64)]
        return [keys.chunks("a", "all"), *chunks]

    def close(self) -> None:
        for counter in (self.a, self.b):
            counter.clear()
            counter.close()
        super().close()


class Bitmap(Counts):
    name = BITMAP

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.verbs = {
            "count": lambda: self.server.bitcount(f"{BITMAP} a"),
            **{verb: self._operation(verb) for verb in VERBS[1:]},
        }

    def _operation(self, verb: str) -> Callable[[], int]:
        a, b, both = (f"{BITMAP} {name}" for name in ("a", "b", "both"))
        commands = [("BITOP", verb, both, a, b), ("BITCOUNT", both), ("UNLINK", both)]
        return lambda: self._both(*commands)[1]

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        size = max(map(max, (scenario.a, scenario.b, scenario.spare))) // 8 + 1
        for name, ids, written in operands(scenario, bits):
            self.server.set(f"{BITMAP} {name}", written or bitmap(ids, size))

    def add(self, item: int) -> bool:
        return not self.server.setbit(f"{BITMAP} a", item, 1)

    def add_many(self, items: Sequence[int]) -> list[bool]:
        return [not was for was in self._both(*(("SETBIT", f"{BITMAP} a", i, 1) for i in items))]


class Set(Counts):
    name = SET

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b, both = (f"{SET} {name}" for name in ("a", "b", "both"))
        size, common = ("SCARD", a), ("SINTERCARD", 2, a, b)
        self.verbs = {
            "count": lambda: self.server.scard(a),
            "and": lambda: self.server.execute_command(*common),
            "or": lambda: self._both(("SUNIONSTORE", both, a, b), ("UNLINK", both))[0],
            "xor": lambda: self._odd(*self._both(size, ("SCARD", b), common)),
        }
        try:
            self.verbs["and"]()
        except redis.ResponseError:  # before Redis 7.0
            del self.verbs["and"], self.verbs["xor"]

    @staticmethod
    def _odd(a: int, b: int, common: int) -> int:
        return a + b - 2 * common

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        if bits:  # millions take a second for each of the other verbs
            self.verbs = {"count": self.verbs["count"]}
        for name, ids, _ in operands(scenario, bits)[: 1 if bits else 2]:
            for start in range(0, len(ids), AT_ONCE):
                self.server.sadd(f"{SET} {name}", *ids[start : start + AT_ONCE])

    def add(self, item: int) -> int:
        return self.server.sadd(f"{SET} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return self._both(*(("SADD", f"{SET} a", i) for i in items))


class HyperLogLog(Counts):
    name = HYPERLOGLOG
    is_exact = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        a, b = (f"{HYPERLOGLOG} {name}" for name in "ab")
        self.verbs = {
            "count": lambda: self.server.pfcount(a),
            "or": lambda: self.server.pfcount(a, b),
        }

    def fill(self, scenario: Scenario, bits: Dense | None) -> None:
        for name, ids, _ in operands(scenario, bits):
            for start in range(0, len(ids), AT_ONCE):
                self.server.pfadd(f"{HYPERLOGLOG} {name}", *ids[start : start + AT_ONCE])

    def add(self, item: int) -> int:
        return self.server.pfadd(f"{HYPERLOGLOG} a", item)

    def add_many(self, items: Sequence[int]) -> list[int]:
        return [self.server.pfadd(f"{HYPERLOGLOG} a", *items)]


def distinct(
    server: LocalRedis,
    client: redis.Redis,
    *,
    space: int,
    members: int,
    rounds: int,
    singles: int,
    sizes: list[int],
    times: int,
) -> dict[str, Any]:
    """All of the section: so many ids that there may be, of which so many members have one."""
    found: dict[str, Any] = {"space": space, "rounds": rounds, "singles": singles, "rows": []}
    found["chunks"] = chunk_forms(client, sizes, times)
    given = Given.of(space, members)
    found["mapping"], names = give(client, server.url, given)
    found["mapping"]["by_hand"] = bytes_in_hash(client, found["mapping"]["members"])
    with placed(server, APART):
        found["first"] = first_met(server.url, client, rounds=rounds, singles=singles)
        for scenario, bits in scenarios(given):
            others = [kind(server.url) for kind in (Bitmap, Set, HyperLogLog)]
            everybody = [OurCounts(server.url, names), *others]
            found["rows"] += compare(
                server.url, client, everybody, scenario, bits, rounds=rounds, singles=singles
            )
    client.flushall()
    return found


def scenarios(given: Given) -> Iterator[tuple[Scenario, Dense | None]]:
    for count in (10, given.space // 1000, given.space // 100):
        yield sparse(given, count), None
    for scenario in clustered(given):
        yield scenario, None
    yield dense(given)


def compare(
    url: str,
    client: redis.Redis,
    everybody: Sequence[Counts],
    scenario: Scenario,
    bits: Dense | None,
    *,
    rounds: int,
    singles: int,
) -> list[dict[str, Any]]:
    """What each contender takes, and its costs."""
    a, b = {*scenario.a}, {*scenario.b}
    truth = {"count": len(a), "and": len(a & b), "or": len(a | b), "xor": len(a ^ b)}
    with ExitStack() as stack:
        rows: dict[str, dict[str, Any]] = {}
        for counts in everybody:
            stack.callback(counts.close)
            counts.fill(scenario, bits)
            used = sum(client.memory_usage(key, samples=0) or 0 for key in counts.own_keys())
            rows[counts.name] = {"bytes": used, "error": errors(counts, truth), "verbs": {}}
            if bits and isinstance(counts, OurCounts):
                check_written(client, url, counts.a, list(scenario.a))
        for verb in VERBS:
            asked = [counts for counts in everybody if verb in counts.verbs]
            for name, costs in counting(client, asked, verb, rounds).items():
                rows[name]["verbs"][verb] = costs
        for name, costs in adding(client, everybody, scenario, rounds, singles).items():
            rows[name]["adds"] = costs
    common = {"scenario": scenario.name, "ids": len(a), "truth": truth}
    return [{**common, "name": name, **row} for name, row in rows.items()]


def errors(counts: Counts, truth: dict[str, int]) -> dict[str, float]:
    """By how much it is wrong, to the true number."""
    found = {verb: ask() / truth[verb] - 1 for verb, ask in counts.verbs.items()}
    assert not counts.is_exact or not any(found.values()), f"{counts.name}: {found}"
    return found


def counting(
    client: redis.Redis, everybody: Sequence[Counts], verb: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Medians of interleaved rounds."""
    chance = random.Random(rounds)
    costs: dict[str, list[Cost]] = {counts.name: [] for counts in everybody}
    calls = {}
    for counts in everybody:
        ask = counts.verbs[verb]
        once, _ = measure(client, lambda _, ask=ask: ask(), [0])
        calls[counts.name] = max(1, min(CALLS, int(1e6 * SECONDS / once.elapsed)))
    for _ in range(rounds):
        for counts in chance.sample(everybody, len(everybody)):
            ask = counts.verbs[verb]
            cost, _ = measure(
                client, lambda n, ask=ask: [ask() for _ in n], range(calls[counts.name])
            )
            costs[counts.name].append(cost)
    return {name: medians(each) for name, each in costs.items()}


def adding(
    client: redis.Redis, everybody: Sequence[Counts], scenario: Scenario, rounds: int, singles: int
) -> dict[str, dict[str, dict[str, float]]]:
    """New ids, then the same again: one by one, then in batches. Medians of interleaved rounds."""
    chance, spare = random.Random(singles), iter(scenario.spare)
    found: dict[str, dict[str, list[Cost]]] = {counts.name: {} for counts in everybody}
    for way, count in (("add", singles), ("add_many", BATCH)):
        for number in range(rounds + 1):
            ids = [*islice(spare, count)]
            assert len(ids) == count
            for counts in chance.sample(everybody, len(everybody)):
                items = [*map(counts.item, ids)]
                for kind in ("new", "again"):
                    cost, told = measure(client, adder(counts, way), items)
                    if counts.is_exact:
                        check(counts.name, [*map(bool, told)], [kind == "new"] * count)
                    if number:  # the first one warms up
                        found[counts.name].setdefault(f"{way}, {kind}", []).append(cost)
    return {
        name: {what: medians(costs) for what, costs in each.items()} for name, each in found.items()
    }


def adder(counts: Counts, way: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What adds, one by one or all at once."""
    if way == "add_many":
        return counts.add_many
    return lambda items: [counts.add(item) for item in items]


def first_met(
    url: str, client: redis.Redis, *, rounds: int, singles: int
) -> dict[str, dict[str, float]]:
    """What a member costs that has no id yet: medians."""
    found: dict[str, list[Cost]] = {}
    with DistinctCounter.from_url(url, "first") as counter:
        for number in range(rounds + 1):
            for way, count in (("add", singles), ("add_many", BATCH)):
                items = [f"{way} {number} {i}" for i in range(count)]
                run = counter.add_many if count == BATCH else lambda some: [*map(counter.add, some)]
                cost, told = measure(client, run, items)
                assert all(told)
                if number:
                    found.setdefault(way, []).append(cost)
        counter.clear()
    return {way: medians(costs) for way, costs in found.items()}


def faster(found: dict[str, Any], verb: str, figure: str = "elapsed") -> float:
    """How many times as fast a counter of few ids is as a plain bitmap: from call to answer, or in commands."""
    first = found["rows"][0]["scenario"]
    cost = {row["name"]: row["verbs"] for row in found["rows"] if row["scenario"] == first}
    return float(cost[BITMAP][verb][figure] / cost[COUNTER][verb][figure])


def slower(found: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """By each exact peer's name, where it is faster than the counter from call to answer: scenario and verbs."""
    costs = {(row["scenario"], row["name"]): row["verbs"] for row in found["rows"]}
    for peer in (BITMAP, SET):
        where = []
        for scenario in dict.fromkeys(row["scenario"] for row in found["rows"]):
            own = costs[scenario, COUNTER]
            verbs = [
                verb.upper() if verb in VERBS[1:] else verb
                for verb, cost in costs[scenario, peer].items()
                if cost["elapsed"] < own[verb]["elapsed"]
            ]
            if verbs:
                where.append(f"{scenario} ({', '.join(verbs)})")
        if where:
            yield peer, where
