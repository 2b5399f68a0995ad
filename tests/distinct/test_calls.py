"""How much one call of a distinct counter does, and what comes between two of its calls."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tests.helpers.flows import replies_to, run, script_of, stored_ids

pytestmark = pytest.mark.usefixtures("away_from_midnight")
CHUNK = 65_536
DAILY: dict[str, Any] = {"granularity": "d", "slices": 30}
OPERATIONS = {"and": and_, "or": or_, "xor": xor}


@pytest.fixture
def begun(own: redis.Redis) -> redis.Redis:
    """A server with a mapping that has given the ids of 3,000 chunks."""
    own.flushall()
    DistinctCounter(own, "begun").add("a member")
    own.set("{ids}:members", 3000 * CHUNK)
    return own


def _slices(own: redis.Redis, counter: DistinctCounter) -> list[str]:
    """The live slices' labels; the counter's parameters are stored from then on."""
    own.hset("{ids}:counters", counter.name, counter.config.stored)
    if counter.config.window is None:
        own.hset(f"{{ids}}:chunks:{counter.name}:all", "n", 0)
    return [slice.label for slice in counter.info().slices]


def _store(own: redis.Redis, name: str, label: str, chunks: dict[int, Iterable[int]]) -> None:
    """A slice that has counted these ids of each chunk, as docs/distinct.md says how."""
    entries: dict[str, Any] = {"of": own.getrange("{ids}:layout", 0, 15), "n": 0}
    for chunk, some in chunks.items():
        ids = sorted(some)
        entries["n"] += len(ids)
        if len(ids) <= 4096:
            entries[f"{chunk}"] = b":" + b"".join(id.to_bytes(2, "big") for id in ids)
        else:
            bits = bytearray(CHUNK // 8)
            for id in ids:
                bits[id >> 3] |= 0x80 >> (id & 7)
            entries[f"{chunk}"] = len(ids)
            own.set(f"{{ids}}:bitmap:{name}:{label}:{chunk}", bytes(bits))
    own.hset(f"{{ids}}:chunks:{name}:{label}", mapping=entries)


def _calls(own: redis.Redis) -> int:
    """Of scripts, since the statistics were reset."""
    stats = own.info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"] for command in ("eval", "evalsha"))  # fmt: skip


@pytest.mark.parametrize("bitmaps", [0, 1, 12])
@pytest.mark.parametrize(
    "pool", [range(0, CHUNK, 10), range(30_000, 36_500)], ids=["spread", "near"]
)
def test_no_call_looks_at_too_many_ids(begun: redis.Redis, pool: range, bitmaps: int) -> None:
    """Of one chunk, which 30 slices of a counter have, or 30 counters: 30,000 ids a call at most."""
    rng, own = random.Random(bitmaps), begun
    core = {*rng.sample(pool, 500)}
    sizes = [4600] * bitmaps + [4000] * (30 - bitmaps)
    rng.shuffle(sizes)
    counted = [core | {*rng.sample(sorted({*pool} - core), size - 500)} for size in sizes]
    days = DistinctCounter(own, "days", **DAILY)
    for label, ids in zip(_slices(own, days), counted, strict=True):
        _store(own, "days", label, {7: ids})
    counters = [DistinctCounter(own, f"{i}") for i in range(30)]
    for counter, ids in zip(counters, counted, strict=True):
        _slices(own, counter)
        _store(own, counter.name, "all", {7: ids})
    first, *others = counters
    least = sum(size for size in sizes if size <= 4096) / 30_000
    for operation, function in OPERATIONS.items():
        own.config_resetstat()
        count = getattr(first, f"count_{operation}")(*others)
        assert len(reduce(function, counted)) == count
        assert least <= _calls(own) < 200
        own.config_resetstat()
        assert len(set().union(*counted)) == getattr(days, f"count_{operation}")()
        assert least <= _calls(own) < 200
        some = getattr(days.within(20), f"count_{operation}")(days, *counters[:3])
        operands = [set().union(*counted[10:]), set().union(*counted), *counted[:3]]
        assert len(reduce(function, operands)) == some
    assert [] == own.keys("*scratch*")


def test_many_slices_of_many_small_chunks(begun: redis.Redis) -> None:
    """A week of hours, each with one id in each of 1,000 chunks."""
    hours = DistinctCounter(begun, "hours", granularity="h", slices=168)
    days = DistinctCounter(begun, "days", **DAILY)
    for number, label in enumerate(_slices(begun, hours)):
        _store(begun, "hours", label, {3 * chunk: [number % 5 * 1000] for chunk in range(1000)})
    for number, label in enumerate(_slices(begun, days)):
        _store(begun, "days", label, {chunk: [number % 5 * 1000] for chunk in range(1500)})
    for count, expected in (
        (hours.count, 5000),
        (lambda: hours.count_and(days), 2500),
        (lambda: hours.count_xor(days), 2500 + 5000),
    ):
        begun.config_resetstat()
        assert expected == count()
        assert 20 < _calls(begun) < 1000


def test_a_sliced_counter_combined_with_none_is_its_count(begun: redis.Redis) -> None:
    """What its slices have together, not in common."""
    days = DistinctCounter(begun, "days", **DAILY)
    labels = _slices(begun, days)
    for of, chunks in enumerate(({0: range(10)}, {0: range(5, 4200)}, {0: range(4, 12), 9: [1]})):
        _store(begun, "days", labels[-1 - of], chunks)  # type: ignore[arg-type]
        for view, expected in (
            (days, [10, 4200, 4201][of]),
            (days.within(2), [10, 4200, 4200][of]),
            (days.slice(labels[-1]), 10),
        ):
            for verb in ("count", "count_and", "count_or", "count_xor"):
                assert expected == getattr(view, verb)(), verb


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_count_during_which_the_mapping_is_cleared_begins_anew(
    begun: redis.Redis, operation: str
) -> None:
    """Else it would be the sum of what there was and what there is."""
    chunks = {chunk: range(0, 4000, 1 + chunk % 2) for chunk in range(10)}
    one, other, gone = (DistinctCounter(begun, name) for name in ("one", "other", "gone"))
    for counter in (one, other, gone):
        _slices(begun, counter)
        _store(begun, counter.name, "all", chunks)
    flow = one._protocol.count(operation, one._with((other,)))
    replies = replies_to(begun, flow.send(replies_to(begun, next(flow))))
    gone.clear(mapping=True)
    one.add_many(f"{i}" for i in range(5000))
    other.add_many(f"{i}" for i in range(4990, 5003))
    counted, _ = run(begun, flow, replies)
    assert {"and": 10, "or": 5003, "xor": 4993}[operation] == counted


@pytest.mark.parametrize("mapping", [False, True])
def test_clear_of_many_chunks_takes_several_calls(
    begun: redis.Redis, monkeypatch: pytest.MonkeyPatch, *, mapping: bool
) -> None:
    """Each arrives twice, as when its reply is lost."""
    monkeypatch.setattr("tbloom.distinct.storage._MAX_CHUNKS", 15)
    chunks = {chunk: range(4097 if chunk % 4 else 7) for chunk in range(10)}
    days, ever, other = (
        DistinctCounter(begun, name, **(DAILY if name == "days" else {}))
        for name in ("days", "ever", "other")
    )
    for label in _slices(begun, days)[-4:]:
        _store(begun, "days", label, chunks)  # type: ignore[arg-type]
    for counter in (ever, other):
        _slices(begun, counter)
        _store(begun, counter.name, "all", dict.fromkeys(range(40), range(4100)))
    for counter in (days, ever):
        flow, replies, clears = counter._protocol.clear(mapping=mapping), None, 0
        while True:
            try:
                calls = flow.send(replies)
            except StopIteration:
                break
            clears += sum(script_of(call) == "distinct/clear" for call in calls)
            replies_to(begun, calls)
            replies = replies_to(begun, calls)
        assert counter is ever or clears >= 4
        assert [] == begun.keys(f"*:{counter.name}:*")
        assert not begun.hexists("{ids}:counters", counter.name)
    left = [key for key in begun.scan_iter() if b":lane:" not in key]
    assert (left == []) == mapping
    expected = 0 if mapping else 40 * 4100
    assert expected == other.count() == len(stored_ids(begun, other))


@pytest.mark.parametrize("mapping", [False, True])
def test_a_bitmap_that_is_made_while_many_chunks_are_cleared_is_cleared_too(
    begun: redis.Redis, monkeypatch: pytest.MonkeyPatch, *, mapping: bool
) -> None:
    """The call that was to clear its slice is refused, and those after it are not."""
    monkeypatch.setattr("tbloom.distinct.storage._MAX_CHUNKS", 1)
    days = DistinctCounter(begun, "days", **DAILY)
    label = _slices(begun, days)[-1]

    def add(ids: range) -> None:
        begun.hset("{ids}:counters", "days", days.config.stored)
        _store(begun, "days", label, {0: ids, 1: range(10)})

    last = "distinct/forget" if mapping else "distinct/clear"
    flow, replies, is_made = days._protocol.clear(mapping=mapping), None, False
    add(range(4000))
    while True:
        try:
            calls = flow.send(replies)
        except StopIteration:
            break
        if not is_made and getattr(calls[-1], "words", [""])[0] == "HGETALL":
            add(range(4000))  # else there is nothing to be cleared along with the mapping
        if not is_made and any(script_of(call) == last for call in calls):
            add(range(5000))
            is_made = True
        replies = replies_to(begun, calls)
    assert is_made
    assert [] == begun.keys("*:days:*")
    assert days.add("another")
    assert 1 == days.count()


@pytest.mark.parametrize("bitmaps", [0, 100])
def test_info_tells_the_memory_of_a_directory_with_chunks_of_all_sizes(
    begun: redis.Redis, bitmaps: int
) -> None:
    """The server alone would sample a few of them to estimate their memory."""
    rng, one = random.Random(bitmaps), DistinctCounter(begun, "one")
    _slices(begun, one)
    sizes = [*range(1, 7), *[4000] * 6] * 50 + [4100] * bitmaps
    rng.shuffle(sizes)
    _store(begun, "one", "all", {chunk: range(size) for chunk, size in enumerate(sizes)})
    taken = begun.memory_usage("{ids}:chunks:one:all", samples=0)
    for key in begun.scan_iter("*:bitmap:one:*"):
        taken += begun.memory_usage(key, samples=0)
    [whole] = one.info().slices
    assert (600, bitmaps) == (whole.sorted_chunks, whole.bitmap_chunks)
    assert 0.8 * taken < whole.bytes < 1.2 * taken
