"""Distinct ids of 30 days: a DistinctCounter in daily slices, and a bitmap, a SET and a HyperLogLog for each day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import redis
from counts import AT_ONCE, BITMAP, COUNTER, HYPERLOGLOG, SET
from idsets import CHUNK, member, named
from serving import Cost, command_stats, measure, medians, slow_log

from tbloom import DistinctCounter

DAYS, WEEK = 30, 7
WEEK_COUNT, ALL_COUNT, TWO_AND = f"{WEEK} days", f"{DAYS} days", "AND of two days"
#: A chunk of more ids is a bitmap.
MOST_SORTED = 4096
#: The slow log's threshold (us). It also lists commands inside scripts; few of these take longer.
_SLOW = 20
#: Commands of the bench itself.
_BESIDE = (b"INFO", b"CONFIG", b"SLOWLOG")

Verbs = dict[str, Callable[[], int]]


def packed(ids: list[int]) -> bytes:
    """A chunk of few ids, in the counter's format."""
    return b":" + b"".join(number.to_bytes(2, "big") for number in sorted(ids))


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
        for name, write in CONTENDERS.items():
            client.flushall()
            with DistinctCounter.from_url(url, "daily", granularity="d", slices=DAYS) as counter:
                verbs = write(client, days) if write else _ours(client, days, counter)
                row = {"scenario": days.name, "name": name, "bytes": _bytes(client, counter)}
                for verb, ask in verbs.items():
                    answers = ask()
                    assert answers == truth[verb] or name == HYPERLOGLOG, (
                        f"{name}, {verb}: {answers}"
                    )
                costs = {verb: _cost(client, ask, rounds) for verb, ask in verbs.items()}
                rows.append({**row, "verbs": costs})
    client.flushall()
    return {"days": DAYS, "week": WEEK, "rounds": rounds, "slow": _SLOW, "rows": rows}


def _bytes(client: redis.Redis, counter: DistinctCounter) -> int:
    """Bytes of all days: the counter's slices, or all keys."""
    own = sum(slice.bytes for slice in counter.info().slices)
    return own or sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


def scenarios(space: int, a_day: int) -> Iterator[Days]:
    """Scattered ids, a hundredth of the space: in bitmaps, in short sorted chunks, and in sorted chunks that are about as
    long as they get. Then consecutive ones; each day has three quarters of the day before."""
    for count, among in ((a_day, space // 10), (a_day, space), (a_day * 3 // 5, space // 10)):
        chance = np.random.default_rng(count)
        drawn = [np.sort(chance.choice(among, count, replace=False)) for _ in range(DAYS)]
        yield Days(f"{count:,} a day, scattered over {among:,}", drawn)
    starts = range(0, DAYS * a_day // 4, a_day // 4)
    yield Days(f"{a_day:,} a day, clustered", [np.arange(start, start + a_day) for start in starts])


def _cost(client: redis.Redis, ask: Callable[[], int], rounds: int) -> dict[str, float]:
    """Medians, also of the server's longest command of a count (us); and how many scripts one takes."""
    costs: list[Cost] = []
    longest, scripts = [], 0
    with slow_log(client, _SLOW):
        for _ in range(rounds):
            client.slowlog_reset()
            cost, _ = measure(client, lambda _: ask(), [0])
            scripts = int(command_stats(client).get("evalsha", {"calls": 0})["calls"])
            slow = client.slowlog_get(10_000)
            taken = [one["duration"] for one in slow if not one["command"].startswith(_BESIDE)]
            longest.append(max(taken, default=_SLOW))
            costs.append(cost)
    return {**medians(costs), "longest": median(longest), "scripts": scripts}


def _ours(client: redis.Redis, days: Days, counter: DistinctCounter) -> Verbs:
    """Only the current slice can be added to, so all are written directly in the counter's format, without members."""
    keys, members = counter.config.keys, [*map(member, range(100))]
    counter.add_many(members)
    labels = [slice.label for slice in counter.info().slices]
    today = client.hgetall(keys.directory("daily", labels[-1]))
    own = sorted(named(client, "ids", members))
    assert today[b"0"] == packed(own), "not the format of the counter"
    client.set(keys.members(), 1 + max(int(ids[-1]) for ids in days.ids))
    for label, ids in zip(labels, days.ids, strict=True):
        fields: dict[str, Any] = {"of": today[b"of"], "n": len(ids)}
        numbers, starts = np.unique(ids // CHUNK, return_index=True)
        for chunk, some in zip(numbers, np.split(ids % CHUNK, starts[1:]), strict=True):
            if len(some) > MOST_SORTED:
                client.set(keys.bitmap("daily", label, chunk), _bits(some, CHUNK))
                fields[str(chunk)] = len(some)
            else:
                fields[str(chunk)] = packed(some.tolist())
        client.delete(keys.directory("daily", label))
        client.hset(keys.directory("daily", label), mapping=fields)
    newest, before = (counter.slice(label) for label in (labels[-1], labels[-2]))
    return {
        WEEK_COUNT: lambda: counter.count(within=WEEK),
        ALL_COUNT: counter.count,
        TWO_AND: lambda: newest.count_and(before),
    }


def _bits(ids: np.ndarray, size: int) -> bytes:
    bits = np.zeros(size, np.uint8)
    bits[ids] = 1
    return np.packbits(bits).tobytes()


def _bitmaps(client: redis.Redis, days: Days) -> Verbs:
    for day, ids in enumerate(days.ids):
        client.set(f"{day}", _bits(ids, int(ids[-1]) // 8 * 8 + 8))

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


#: Each writes the days and returns how to count them; None: the counter.
CONTENDERS: dict[str, Callable[[redis.Redis, Days], Verbs] | None] = {
    COUNTER: None,
    BITMAP: _bitmaps,
    SET: _sets,
    HYPERLOGLOG: _hyperloglogs,
}
