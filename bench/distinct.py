"""Exact distinct counts compared with a plain bitmap, a SET of ids and HyperLogLog: memory, and the cost of each verb."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import redis
from counts import (
    AGAIN,
    BITMAP,
    COUNTER,
    SET,
    VERBS,
    Bitmap,
    Counts,
    HyperLogLog,
    OurCounts,
    OurCountsAgain,
    Set,
)
from daily import daily, longest
from idsets import Scenario, scenarios
from race import check
from serving import APART, Cost, measure, medians, placed
from streams import BATCH

from tbloom import DistinctCounter
from tbloom.demo.localredis import LocalRedis

#: A round asks so often, or as often as this many seconds allow.
CALLS, SECONDS = 20, 0.02
#: Measurements of the mapping's memory between two doublings.
STEPS = 4
#: Members that get ids at once.
AT_ONCE = 1000
#: The sets are asked for the longest command so often.
_ASKED = 5


def distinct(
    server: LocalRedis,
    client: redis.Redis,
    *,
    space: int,
    members: int,
    rounds: int,
    singles: int,
    a_day: int,
    daily_rounds: int,
) -> dict[str, Any]:
    """The whole section: ``space`` possible ids; the mapping gets ``members``."""
    found: dict[str, Any] = {"space": space, "rounds": rounds, "singles": singles, "rows": []}
    found["mapping"] = mapping(client, server.url, members)
    spare = (rounds + 1) * (singles + BATCH)
    with placed(server, APART):
        found["first"] = first_met(server.url, client, rounds=rounds, singles=singles)
        for scenario in scenarios(space, spare):
            kinds = (OurCounts, OurCountsAgain, Bitmap, Set, HyperLogLog)
            everybody = [kind(server.url) for kind in kinds]
            found["rows"] += compare(client, everybody, scenario, rounds=rounds, singles=singles)
        found["daily"] = daily(server.url, client, space=space, a_day=a_day, rounds=daily_rounds)
    return found


def compare(
    client: redis.Redis,
    everybody: Sequence[Counts],
    scenario: Scenario,
    *,
    rounds: int,
    singles: int,
) -> list[dict[str, Any]]:
    """Each contender's memory and costs."""
    a, b = {*scenario.a.tolist()}, {*scenario.b.tolist()}
    truth = {
        "count": len(a),
        "and": len(a & b),
        "or": len(a | b),
        "xor": len(a ^ b),
        "andnot": len(a - b),
    }
    with ExitStack() as stack:
        rows: dict[str, dict[str, Any]] = {}
        for counts in reversed(everybody):
            stack.callback(counts.close)
        for counts in everybody:
            counts.fill(scenario)
            used = sum(client.memory_usage(key, samples=0) or 0 for key in counts.own_keys())
            rows[counts.name] = {"bytes": used, "error": errors(counts, truth), "verbs": {}}
        for verb in VERBS:
            asked = [counts for counts in everybody if verb in counts.verbs]
            for name, costs in counting(client, asked, verb, rounds).items():
                rows[name]["verbs"][verb] = costs
        gc.collect()
        gc.freeze()  # else each collection scans millions of ids, in the time of any contender
        stores = [counts for counts in everybody if counts.stores]
        for name, costs in adding(client, stores, scenario, rounds, singles).items():
            rows[name]["adds"] = costs
        gc.unfreeze()
    common = {"scenario": scenario.name, "ids": len(a), "truth": truth}
    return [{**common, "name": name, **row} for name, row in rows.items()]


def errors(counts: Counts, truth: dict[str, int]) -> dict[str, float]:
    """The relative error of each verb."""
    found = {verb: ask() / truth[verb] - 1 for verb, ask in counts.verbs.items()}
    assert not counts.is_exact or not any(found.values()), f"{counts.name}: {found}"
    return found


def counting(
    client: redis.Redis, everybody: Sequence[Counts], verb: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Medians of interleaved rounds; and of the longest command of a question (us)."""
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
    return {
        counts.name: {
            **medians(costs[counts.name]),
            "longest": longest(client, counts.verbs[verb], _ASKED),
        }
        for counts in everybody
    }


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
                for kind in ("new", "again"):
                    cost, answers = measure(client, adder(counts, way), ids)
                    if counts.is_exact:
                        check(counts.name, [*map(bool, answers)], [kind == "new"] * count)
                    if number:  # the first one warms up
                        found[counts.name].setdefault(f"{way}, {kind}", []).append(cost)
    return {
        name: {what: medians(costs) for what, costs in each.items()} for name, each in found.items()
    }


def adder(counts: Counts, way: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that adds, one by one or all at once."""
    if way == "add_many":
        return counts.add_many
    return lambda items: [counts.add(item) for item in items]


def mapping(client: redis.Redis, url: str, members: int) -> dict[str, Any]:
    """What a mapping takes for its members, on the way too; and one hash of them, written by hand."""
    growth: list[dict[str, float]] = []
    sizes = [members * 2 ** (-step / STEPS) for step in range(STEPS, -1, -1)]
    with DistinctCounter.from_url(url, "everyone") as everyone:
        for start in range(0, members, AT_ONCE):
            names = [f"user:{number:08}" for number in range(start, start + AT_ONCE)]
            assert all(everyone.add_many(names))
            if sizes and start + AT_ONCE >= sizes[0]:
                sizes.pop(0)
                info = everyone.info()
                growth.append(
                    {
                        "members": info.members,
                        "bytes": info.mapping_bytes / info.members,
                        "buckets": info.buckets,
                    }
                )
            client.hset("by hand", mapping=dict.fromkeys(names, start))
        used = client.memory_usage("by hand", samples=0)
        client.delete("by hand")  # in the foreground, so as not to disturb the next measurement
        everyone.clear(mapping=True)
    return {"members": members, "growth": growth, "by_hand": used / members}


def first_met(
    url: str, client: redis.Redis, *, rounds: int, singles: int
) -> dict[str, dict[str, float]]:
    """The cost of a member without an id: medians."""
    found: dict[str, list[Cost]] = {}
    with DistinctCounter.from_url(url, "first") as counter:
        for number in range(rounds + 1):
            for way, count in (("add", singles), ("add_many", BATCH)):
                items = [f"{way} {number} {i}" for i in range(count)]
                run = counter.add_many if count == BATCH else lambda some: [*map(counter.add, some)]
                cost, answers = measure(client, run, items)
                assert all(answers)
                if number:
                    found.setdefault(way, []).append(cost)
        counter.clear(mapping=True)
    return {way: medians(costs) for way, costs in found.items()}


def faster(found: dict[str, Any], verb: str, figure: str) -> float:
    """How many times as fast a counter of few ids is as a plain bitmap: from call to answer, or in commands."""
    first = found["rows"][0]["scenario"]
    cost = {row["name"]: row["verbs"] for row in found["rows"] if row["scenario"] == first}
    return float(cost[BITMAP][verb][figure] / cost[COUNTER][verb][figure])


def ratios(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """For each scenario, first and again: the counter's time from call to answer, by verb, as a multiple of a bitmap's."""
    costs = {(row["scenario"], row["name"]): row["verbs"] for row in found["rows"]}
    for scenario in dict.fromkeys(row["scenario"] for row in found["rows"]):
        of_bitmap = costs[scenario, BITMAP]
        for name in (COUNTER, AGAIN):
            own = costs[scenario, name]
            yield (
                scenario,
                name,
                {verb: cost["elapsed"] / of_bitmap[verb]["elapsed"] for verb, cost in own.items()},
            )


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
