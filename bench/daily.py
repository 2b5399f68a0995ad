"""Distinct ids of 30 days: a DistinctCounter in daily slices, and a bitmap, a SET and a HyperLogLog for each day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import redis
from counts import AGAIN, AT_ONCE, BITMAP, COUNTER, HYPERLOGLOG, SET
from idsets import bitmap, write
from serving import Cost, command_stats, measure, medians, slow_log

from tbloom import DistinctCounter

DAYS, WEEK = 30, 7
WEEK_COUNT, ALL_COUNT, TWO_AND = f"{WEEK} days", f"{DAYS} days", "AND of two days"
#: The slow log's threshold (us). It also lists commands inside scripts; few of these take longer.
SLOW = 20
#: Commands of the bench itself.
_BESIDE = (b"INFO", b"CONFIG", b"SLOWLOG")

Verbs = dict[str, Callable[[], int]]


class Days(NamedTuple):
    """The ids of each day, oldest first, sorted."""

    name: str
    ids: list[np.ndarray]

    def truth(self) -> dict[str, int]:
        return {
            WEEK_COUNT: len(np.unique(np.concatenate(self.ids[-WEEK:]))),
            ALL_COUNT: len(np.unique(np.concatenate(self.ids))),
            TWO_AND: len(np.intersect1d(*self.ids[-2:])),
        }


def daily(url: str, client: redis.Redis, *, space: int, a_day: int, rounds: int) -> dict[str, Any]:
    """For each scenario and contender: bytes of all days, and the cost of each count."""
    rows = []
    for days in scenarios(space, a_day):
        truth = days.truth()
        for name, fill in CONTENDERS.items():
            client.flushall()
            with DistinctCounter.from_url(
                url, "daily", None, granularity="d", slices=DAYS
            ) as counter:
                verbs = fill(client, days, counter)
                row = {"scenario": days.name, "name": name, "bytes": _bytes(client, counter)}
                for verb, ask in verbs.items():
                    answers = ask()
                    assert answers == truth[verb] or name == HYPERLOGLOG, (
                        f"{name}, {verb}: {answers}"
                    )
                costs = {verb: _cost(client, ask, rounds) for verb, ask in verbs.items()}
                rows.append({**row, "verbs": costs})
    client.flushall()
    return {"days": DAYS, "week": WEEK, "rounds": rounds, "slow": SLOW, "rows": rows}


def _bytes(client: redis.Redis, counter: DistinctCounter) -> int:
    """Bytes of all days: the counter's slices, or all keys."""
    own = sum(slice.bytes for slice in counter.info().slices)
    return own or sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


def scenarios(space: int, a_day: int) -> Iterator[Days]:
    """Scattered ids, a hundredth of the space: in bitmaps, in short lists, and in lists that are about as long as they get.
    Then consecutive ones; each day has three quarters of the day before."""
    for count, among in ((a_day, space // 10), (a_day, space), (a_day * 3 // 5, space // 10)):
        chance = np.random.default_rng(count)
        drawn = [np.sort(chance.choice(among, count, replace=False)) for _ in range(DAYS)]
        yield Days(f"{count:,} a day, scattered over {among:,}", drawn)
    starts = range(0, DAYS * a_day // 4, a_day // 4)
    yield Days(f"{a_day:,} a day, clustered", [np.arange(start, start + a_day) for start in starts])


def _cost(client: redis.Redis, ask: Callable[[], int], rounds: int) -> dict[str, float]:
    """Medians, also of the server's longest command of a count (us); and how many commands one takes."""
    costs: list[Cost] = []
    commands = 0
    for _ in range(rounds):
        cost, _ = measure(client, lambda _: ask(), [0])
        commands = sum(int(stats["calls"]) for stats in command_stats(client).values())
        costs.append(cost)
    return {**medians(costs), "longest": longest(client, ask, rounds), "commands_sent": commands}


def longest(client: redis.Redis, ask: Callable[[], int], rounds: int) -> float:
    """How long the longest command of a question holds the server (us): the median of these rounds."""
    found = []
    with slow_log(client, SLOW):
        for _ in range(rounds):
            client.slowlog_reset()
            ask()
            slow = client.slowlog_get(10_000)
            taken = [one["duration"] for one in slow if not one["command"].startswith(_BESIDE)]
            found.append(max(taken, default=SLOW))
    return median(found)


def _ours(client: redis.Redis, days: Days, counter: DistinctCounter) -> Verbs:
    """Only the current slice can be added to, so all are written directly in the counter's format."""
    counter.add(0)
    labels = [slice.label for slice in counter.info().slices]
    for label, ids in zip(labels, days.ids, strict=True):
        write(client, counter, label, ids)
    newest, before = (counter.slice(label) for label in (labels[-1], labels[-2]))
    reader = counter.reader

    def first(ask: Callable[[], int]) -> Callable[[], int]:
        def asking() -> int:
            reader.begin()
            return ask()

        return asking

    return {
        WEEK_COUNT: first(lambda: counter.count(within=WEEK)),
        ALL_COUNT: first(counter.count),
        TWO_AND: first(lambda: newest.count_and(before)),
    }


def _again(client: redis.Redis, days: Days, counter: DistinctCounter) -> Verbs:
    _ours(client, days, counter)
    labels = [slice.label for slice in counter.info().slices]
    newest, before = (counter.slice(label) for label in (labels[-1], labels[-2]))
    return {
        WEEK_COUNT: lambda: counter.count(within=WEEK),
        ALL_COUNT: counter.count,
        TWO_AND: lambda: newest.count_and(before),
    }


def _bitmaps(client: redis.Redis, days: Days) -> Verbs:
    for day, ids in enumerate(days.ids):
        client.set(f"{day}", bitmap(ids))

    def combined(operation: str, some: range) -> int:
        with client.pipeline(transaction=False) as pipeline:
            pipeline.bitop(operation, "both", *some).bitcount("both").unlink("both")
            return int(pipeline.execute()[1])

    return _verbs(partial(combined, "OR"), partial(combined, "AND"))


def _sets(client: redis.Redis, days: Days) -> Verbs:
    _add("SADD", client, days)

    def union(some: range) -> int:
        with client.pipeline(transaction=False) as pipeline:
            pipeline.sunionstore("both", *some).unlink("both")
            return int(pipeline.execute()[0])

    verbs = _verbs(union, lambda some: client.execute_command("SINTERCARD", len(some), *some))
    try:
        verbs[TWO_AND]()
    except redis.ResponseError:  # before Redis 7.0
        del verbs[TWO_AND]
    return verbs


def _hyperloglogs(client: redis.Redis, days: Days) -> Verbs:
    _add("PFADD", client, days)
    verbs = _verbs(lambda some: client.pfcount(*map(str, some)), lambda _: 0)
    del verbs[TWO_AND]
    return verbs


def _add(command: str, client: redis.Redis, days: Days) -> None:
    for day, ids in enumerate(days.ids):
        for start in range(0, len(ids), AT_ONCE):
            client.execute_command(command, day, *ids[start : start + AT_ONCE].tolist())


def _verbs(union: Callable[[range], int], common: Callable[[range], int]) -> Verbs:
    return {
        WEEK_COUNT: lambda: union(range(DAYS - WEEK, DAYS)),
        ALL_COUNT: lambda: union(range(DAYS)),
        TWO_AND: lambda: common(range(DAYS - 2, DAYS)),
    }


#: Each writes the days and returns how to count them.
CONTENDERS: dict[str, Callable[[redis.Redis, Days, DistinctCounter], Verbs]] = {
    COUNTER: _ours,
    AGAIN: _again,
    BITMAP: lambda client, days, _: _bitmaps(client, days),
    SET: lambda client, days, _: _sets(client, days),
    HYPERLOGLOG: lambda client, days, _: _hyperloglogs(client, days),
}
