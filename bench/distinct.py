"""Exact distinct counts compared with a plain bitmap, a SET of ids and HyperLogLog: memory, and the cost of each verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import redis
from pyroaring import BitMap

from bench.serving import APART, Server
from bench.tables import Table
from tbloom import DistinctCounter

COUNTER = "`DistinctCounter`"
BITMAP, SET, HYPERLOGLOG = "a bitmap", "a `SET`", "HyperLogLog"
STORES = COUNTER, BITMAP, SET, HYPERLOGLOG
DAYS = 30
#: Ids per call when a contender is filled.
AT_ONCE = 10_000
#: Larger SETs are counted only: an intersection would block the server for seconds.
MOST_IN_SETS = 200_000

#: By contender and verb. The answers are exact, but HyperLogLog's.
Asks = dict[tuple[str, str], Callable[[], int]]


class Scenario(NamedTuple):
    """Sets of ids, each with about half or three quarters of the one before."""

    name: str
    sets: list[np.ndarray]


def measure(server: Server, *, space: int, a_day: int, rounds: int) -> list[Table]:
    """The whole section: ``space`` possible ids; ``a_day`` of them in daily slices."""
    with server.placed(APART):
        return [
            *_pairs(server, space, rounds),
            _days(server, space, a_day, rounds),
        ]


def _pairs(server: Server, space: int, rounds: int) -> list[Table]:
    """Bytes of a set of ids; and the time of the AND of two."""
    sizes, times = [], []
    ways = [(name, "AND") for name in (COUNTER, BITMAP, SET)]
    for scenario in pairs(space):
        _, used = _filled(server, Scenario(scenario.name, scenario.sets[:1]))
        sizes.append([scenario.name, len(scenario.sets[0]), *used.values()])
        asks, _ = _filled(server, scenario)
        found = {way: _elapsed(server, asks, way, scenario, rounds) for way in ways if way in asks}
        times.append([scenario.name, *map(found.get, ways)])
    columns = {"us": "", **dict.fromkeys((name for name, _ in ways), ",.0f")}
    return [
        Table("distinct", {"bytes": "", "ids": ",d", **dict.fromkeys(STORES, ",d")}, sizes),
        Table("distinct-and", columns, times),
    ]


def _days(server: Server, space: int, a_day: int, rounds: int) -> Table:
    """The union of daily slices: memory, and time."""
    rows = []
    for scenario in days(space, a_day):
        asks, used = _filled(server, scenario, slices=DAYS)
        ways = [(name, "OR") for name in (COUNTER, BITMAP, SET, HYPERLOGLOG)]
        times = [_elapsed(server, asks, way, scenario, rounds) / 1000 for way in ways]
        sizes = [used[name] / 1e6 for name in (COUNTER, BITMAP, SET)]
        rows.append([scenario.name, *sizes, *times])
    columns = {"ids": "", **{f"MB: {name}": ",.2f" for name in (COUNTER, BITMAP, SET)}}
    columns |= {f"ms: {name}": ",.1f" for name, _ in ways}
    return Table("distinct-days", columns, rows)


def _elapsed(
    server: Server, asks: Asks, way: tuple[str, str], scenario: Scenario, rounds: int
) -> float:
    """Microseconds from call to answer, which must be right."""
    name, verb = way
    truth = {
        "AND": lambda: len(np.intersect1d(*scenario.sets)),
        "OR": lambda: len(np.unique(np.concatenate(scenario.sets))),
    }[verb]()
    answer = asks[way]()
    assert answer == truth or name == HYPERLOGLOG, f"{name}, {verb}: {answer:,}, not {truth:,}"
    return median(server.measure(lambda _: asks[way](), [0])[0].elapsed for _ in range(rounds))


def pairs(space: int) -> Iterator[Scenario]:
    """Few ids, scattered ones, consecutive ones, and half of all."""
    for count in (10, space // 100, space // 10):
        ids = np.random.default_rng(count).choice(space, count * 3 // 2, replace=False)
        name = f"{count}" if count <= 10 else f"scattered: {100 * count / space:g} %"
        yield Scenario(name, [np.sort(ids[:count]), np.sort(ids[count // 2 :])])
    run = np.arange(space // 20, space // 20 + space // 100)
    yield Scenario(f"clustered: {len(run):,} in a row", [run, run + len(run) // 2])
    chance = np.random.default_rng(0)
    halves = [np.flatnonzero(chance.random(space) < 0.5) for _ in range(2)]
    yield Scenario(f"half of {space:,}", halves)


def days(space: int, a_day: int) -> Iterator[Scenario]:
    """Scattered ids, and consecutive ones; each day of these has three quarters of the day before."""
    for among in (space // 10, space):
        chance = np.random.default_rng(among)
        drawn = [np.sort(chance.choice(among, a_day, replace=False)) for _ in range(DAYS)]
        yield Scenario(f"{a_day:,} a day, scattered over {among:,}", drawn)
    starts = range(0, DAYS * a_day // 4, a_day // 4)
    yield Scenario(f"{a_day:,} a day, clustered", [np.arange(at, at + a_day) for at in starts])


def _filled(
    server: Server, scenario: Scenario, *, slices: int | None = None
) -> tuple[Asks, dict[str, int]]:
    """All contenders with these sets (the counter with a daily slice for each of them, or a counter), and their bytes."""
    server.empty()
    asks = _counter(server, scenario, slices=slices)
    for fill in (_bitmap, _set, _hyperloglog):
        asks |= fill(server, scenario)
    patterns = ("*:chunks:*", "bitmap *", "set *", "hyperloglog *")
    used = {name: server.bytes_of_keys(of) for name, of in zip(STORES, patterns, strict=True)}
    return asks, used


def _counter(server: Server, scenario: Scenario, *, slices: int | None) -> Asks:
    granularity = "d" if slices else None
    counters = [
        DistinctCounter(server.client, f"counter {n}", None, granularity=granularity, slices=slices)
        for n in range(1 if slices else len(scenario.sets))
    ]
    first = counters[0]
    if slices:
        first.add(0)
        labels = [slice.label for slice in first.info().slices]
        keys = [first.config.keys.piece(first.name, label) for label in labels]
        server.client.delete(keys[-1])
        for key, ids in zip(keys, scenario.sets, strict=True):
            first.from_roaring(_roaring(ids))
            server.client.rename(keys[-1], key)  # only the current slice can be added to
    else:
        for counter, ids in zip(counters, scenario.sets, strict=True):
            counter.from_roaring(_roaring(ids))
    verbs: dict[str, Callable[[], int]] = {"OR": first.count}
    if counters[1:]:
        verbs["AND"] = lambda: first.count_and(counters[1])
    return {(COUNTER, verb): ask for verb, ask in verbs.items()}


def _roaring(ids: np.ndarray) -> bytes:
    """The ids as a bitmap, with runs where these are smaller."""
    made = BitMap(ids.astype(np.uint32))
    made.run_optimize()
    return made.serialize()


def _together(client: redis.Redis, *commands: tuple[Any, ...]) -> list[Any]:
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute()


def _bitmap(server: Server, scenario: Scenario) -> Asks:
    client, keys = server.client, [f"bitmap {n}" for n in range(len(scenario.sets))]
    for key, ids in zip(keys, scenario.sets, strict=True):
        bits = np.zeros(int(ids[-1]) // 8 * 8 + 8, np.uint8)
        bits[ids] = 1
        client.set(key, np.packbits(bits).tobytes())

    def combined(operation: str) -> int:
        commands = [("BITOP", operation, "both", *keys), ("BITCOUNT", "both"), ("UNLINK", "both")]
        return int(_together(client, *commands)[1])

    return {(BITMAP, verb): partial(combined, verb) for verb in ("AND", "OR")}


def _set(server: Server, scenario: Scenario) -> Asks:
    client, keys = server.client, [f"set {n}" for n in range(len(scenario.sets))]
    large = len(scenario.sets[0]) > MOST_IN_SETS
    _fill(client, "SADD", keys[:1] if large else keys, scenario)
    asks: Asks = {}
    if not large:
        union = [("SUNIONSTORE", "both", *keys), ("UNLINK", "both")]
        asks[SET, "OR"] = lambda: int(_together(client, *union)[0])
        asks[SET, "AND"] = lambda: client.execute_command("SINTERCARD", len(keys), *keys)
    return asks


def _hyperloglog(server: Server, scenario: Scenario) -> Asks:
    client, keys = server.client, [f"hyperloglog {n}" for n in range(len(scenario.sets))]
    _fill(client, "PFADD", keys, scenario)
    return {(HYPERLOGLOG, "OR"): lambda: client.pfcount(*keys)}


def _fill(client: redis.Redis, command: str, keys: list[str], scenario: Scenario) -> None:
    for key, ids in zip(keys, scenario.sets, strict=False):
        for start in range(0, len(ids), AT_ONCE):
            client.execute_command(command, key, *ids[start : start + AT_ONCE].tolist())
