"""Slices that get more items than they have room for, and, without a capacity, slices that are sized by the last one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import redis

from tbloom import FilterFull, LocalBloom, TimeBloom
from tbloom.bloom import sizing
from tbloom.bloom.config import configure
from tbloom.bloom.layout import Layout
from tests.helpers.clock import Clockwork
from tests.helpers.making import Make


@pytest.mark.parametrize(
    ("items", "others", "limit"),
    [
        (20_000, 40_000, 1.1e-4 + 2 * 5e-5),  # two standard deviations for the fewer queries
        pytest.param(300_000, 500_000, 1.1e-4, marks=pytest.mark.check),
    ],
)
def test_an_estimate_100_times_too_small_keeps_the_error_rate(
    url: str, name: str, items: int, others: int, limit: float
) -> None:
    """Made for a hundredth of the items that a slice gets: rate, no false negative, memory <= 1.75 x."""
    parameters = {"slices": 1, "error_rate": 1e-4}
    with TimeBloom.from_url(url, f"{name}-right", capacity=items, **parameters) as right:
        right.add("its keys are made at their full size")
        bytes_of_right = right.info().bytes
        right.clear()
    with TimeBloom.from_url(url, name, capacity=items // 100, **parameters) as seen:
        for start in range(0, items, items // 200):
            seen.add_many(f"added {i}" for i in range(start, start + items // 200))
        # Every seventh item: some of each part, and of the seams between them.
        assert all(seen.contains_many(f"added {i}" for i in range(0, items, 7)))
        wrong = sum(seen.contains_many(f"other {i}" for i in range(others))) / others
        info = seen.info()
        seen.clear()
    ratio = info.bytes / bytes_of_right
    print(f"measured {wrong:.3g} of 1e-4; memory {ratio:.2f} x")
    assert items * 0.999 < info.items <= items
    assert info.slices[-1].parts == 7
    assert wrong <= limit
    assert ratio <= 1.75


async def test_a_part_never_holds_more_than_its_capacity(
    make: Make, client: redis.Redis, name: str
) -> None:
    seen = make(capacity=100, shards=1)
    for start in range(0, 1000, 50):
        await seen.add_many(f"item {start + i}" for i in range(50))
    label = (await seen.info()).slices[-1].label
    parts = Layout(configure(name, capacity=100), client.hget(f"{{{name}}}:state", "layout"))
    parts = parts.parts(label)
    state = client.hgetall(f"{{{name}}}:state")
    counts = [int(state[f"{label}:{i}" if i else label]) for i in range(len(parts))]
    assert [100, 200, 400] == counts[:3]
    assert [100, 200, 400, 800] == [part.capacity for part in parts]
    assert 998 <= sum(counts) <= 1000


@pytest.mark.parametrize("way", ["add", "commit"])
async def test_a_slice_that_was_copied_full_gets_another_part(
    make: Make, client: redis.Redis, name: str, way: str
) -> None:
    """As in a copy that was made while the filter grew: its layout was read before, its numbers of items after."""
    seen = make(capacity=100)
    await seen.add("a")
    label = (await seen.info()).slices[-1].label
    client.hset(f"{{{name}}}:state", label, 100)
    if way == "add":
        assert [True, True, False] == await seen.add_many(["b", "c", "a"])
    else:
        await seen.commit_many(["b", "c", "a"])
    assert [True] * 3 == await seen.contains_many(["a", "b", "c"])
    info = await seen.info()
    assert (2, 102) == (info.slices[-1].parts, info.items)


async def test_an_item_of_a_refused_call_is_new_once(make: Make) -> None:
    """An item of a call that ended in FilterFull is new once, also if a later call with another of these
    items ends so too."""
    seen = make(capacity=10, grow=False, error_rate=1e-9)
    items = [f"item {i}" for i in range(12)]
    with pytest.raises(FilterFull):
        await seen.add_many(items)
    assert [True, False] == [await seen.add(items[0]), await seen.add(items[0])]
    with pytest.raises(FilterFull):
        await seen.add_many([items[1], "another"])
    assert [False, True, False] == [await seen.add(items[i]) for i in (0, 1, 1)]
    assert [False, False, *[True] * 8] == await seen.add_many(items[:10])


RATE = 1e-3
check = pytest.mark.check
STREAMS = [
    *((2000, change) for change in (0.9, 1.1)),
    pytest.param(2000, 1.0, marks=check),
    *(pytest.param(10_000, change, marks=check) for change in (0.9, 1.0, 1.1)),
]


@pytest.mark.parametrize(("items", "change"), STREAMS)
def test_a_slice_takes_little_more_than_a_perfect_estimate(
    clockwork: Any, name: str, items: int, change: float
) -> None:
    """From the second slice on: 1.25 x on average, if no slice has many more items than the last; and the rate is kept."""
    parameters = {"slices": 4, "error_rate": RATE}
    seen = TimeBloom.from_url(clockwork.server.url, name, **parameters)
    server, taken, wanted = redis.Redis.from_url(clockwork.server.url), 0, 0
    for day in range(6):
        clockwork.set(f"2019-06-{day + 3:02} 12:00:00")
        number = round(items * change**day)
        names = [f"{day} {i}" for i in range(number)]
        new = sum(seen.add_many(names))
        assert number * (1 - 1.5 * RATE) - 5 <= new <= number
        assert not any(seen.add_many(names))
        info = seen.info()
        assert (info.capacity, info.slices[-1].items) == (None, new)
        if day:
            label = info.slices[-1].label
            taken += sum(map(server.strlen, server.keys(f"{{{name}}}:{label}*")))
            perfect = configure("a", capacity=number, **parameters)
            wanted += sizing.key_bytes(perfect.bits)
    print(f"{taken / wanted:.2f} x")
    assert taken <= 1.25 * wanted
    others = max(10_000, items)
    assert sum(seen.contains_many(f"other {i}" for i in range(others))) <= 2 * RATE * others


@pytest.mark.parametrize(("items", "keys"), [(2_000_000, 1), (5_000_000, 5), (20_000_000, 13)])
def test_without_a_capacity_a_large_slice_has_many_keys(items: int, keys: int) -> None:
    """Of a slice after one with as many items. docs/operating.md says so; with a capacity, each shard has one."""
    config, label = configure("any"), "20190508"
    layout = Layout(config, f"1557273600000000;{label}={Layout(config).beginning(items)}")
    while sum(part.capacity for part in layout.parts(label)) < items:
        layout = Layout(config, f"1557273600000000;{layout.grown(label, [label])}")
    assert keys == len(layout.parts(label))
    assert [1] == [len(Layout(configure("any", capacity=items)).parts(label))]


@pytest.mark.parametrize("is_local", [False, pytest.param(True, marks=check)])
def test_slices_that_are_filled_late_have_two_parts(
    clockwork: Clockwork, name: str, *, is_local: bool
) -> None:
    """By ``keep=``: after the first window, a slice grows at once to what the older ones have got since they were current."""
    spread = {7: 100, 6: 140, 5: 180, 4: 240, 3: 300, 2: 340, 1: 300}  # items a day, by keep=
    added = itertools.count()

    def make(capacity: int | None) -> TimeBloom | LocalBloom:
        if is_local:
            return LocalBloom(slices=7, capacity=capacity)
        parameters: Any = {"slices": 7, "capacity": capacity, "shards": 1}
        return TimeBloom.from_url(clockwork.server.url, f"{name}{capacity}", **parameters)

    with make(1_800) as sized, make(None) as seen:
        for day in range(14):
            clockwork.go_on(86_400)
            for one in (sized, seen):
                if isinstance(one, LocalBloom):
                    one._clock = lambda day=day: 86_400_000 * (18_050 + day)
            for keep, count in spread.items():
                items = [f"item {number}" for number in itertools.islice(added, count)]
                sized.add_many(items, keep=keep)
                seen.add_many(items, keep=keep)
                assert all(seen.contains_many(items))
        info, right = seen.info(), sized.info()
    assert 7 == len(info.slices)
    assert {1, 2} == {each.parts for each in info.slices}
    assert info.bytes is not None
    assert info.bytes <= 1.5 * (right.bytes or 0)
    assert info.error_rate <= 1e-4
