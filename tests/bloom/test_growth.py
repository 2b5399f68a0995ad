"""What happens when a slice holds more than it was made for."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import FilterFull, TBloomError, TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.layout import Layout
from tests.helpers.making import Make


@pytest.mark.parametrize(
    ("items", "others", "limit"),
    [
        (100_000, 100_000, 1.1e-4 + 2 * 3.2e-5),  # two standard deviations for the fewer queries
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


@pytest.mark.parametrize(("capacity", "number"), [(50, 500), (1, 5000)])
async def test_a_batch_that_fills_a_part_is_answered_to_the_end(
    make: Make, capacity: int, number: int
) -> None:
    """Also if it fills a dozen of them."""
    seen = make(capacity=capacity, error_rate=1e-9)
    items = [f"item {i}" for i in range(number)]
    assert [True] * number + [False] * number == await seen.add_many([*items, *items])
    assert [False] * number == await seen.add_many(items)


@pytest.mark.parametrize("way", ["add", "commit"])
async def test_a_part_that_is_full_without_a_further_one_gets_one(
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


async def test_a_slice_whose_parts_are_all_full_is_an_error(
    make: Make, client: redis.Redis, name: str
) -> None:
    """Another program has written the numbers of items; a call ends all the same."""
    seen = make(capacity=1)
    await seen.add("a")
    label = (await seen.info()).slices[-1].label
    full = {f"{label}:{number}": 10**15 for number in range(1, 100)}
    client.hset(f"{{{name}}}:state", mapping=full)
    with pytest.raises(TBloomError, match="times in a row"):
        await seen.add("b")
    assert not await seen.contains("b")


async def test_a_slice_begins_as_large_as_the_last_one_became(clockwork: Any, make: Make) -> None:
    """New slices start from what the last ones needed, and shrink again with the crawl."""
    seen = make(url=clockwork.server.url, capacity=100, slices=3, error_rate=1e-6)
    parts, sizes = [], []
    for day, items in enumerate([900, 900, 100, 100, 100], 3):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        assert all(await seen.add_many(f"{day} {i}" for i in range(items)))
        newest = (await seen.info()).slices[-1]
        assert items == newest.items
        parts.append(newest.parts)
        sizes.append(newest.bytes)
        assert not any(await seen.add_many(f"{day} {i}" for i in range(items)))
    assert [4, 1] == parts[:2]  # 100 + 200 + 400 + 800, then 1600 at once
    assert sizes[-1] < sizes[1] / 5


async def test_an_item_answered_new_after_a_full_slice_is_new_once(make: Make) -> None:
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
