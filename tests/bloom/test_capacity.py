"""A filter without a capacity: each slice is made for what the last one held."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, LocalBloom, TimeBloom
from tbloom.bloom import sizing
from tbloom.bloom.config import configure, from_stored
from tbloom.bloom.layout import Layout
from tests.helpers.making import Make

RATE = 1e-3
check = pytest.mark.check
STREAMS = [
    *((2000, change) for change in (0.9, 1.0, 1.1)),
    *(pytest.param(10_000, change, marks=check) for change in (0.9, 1.0, 1.1)),
]


def perfect_bytes(items: int, **parameters: Any) -> int:
    """The size of a slice that was made for exactly these items."""
    return sizing.key_bytes(configure("a", capacity=items, **parameters).bits)


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
            wanted += perfect_bytes(number, **parameters)
    print(f"{taken / wanted:.2f} x")
    assert taken <= 1.25 * wanted
    others = max(20_000, items)
    assert sum(seen.contains_many(f"other {i}" for i in range(others))) <= 2 * RATE * others


async def test_few_sizes_where_the_stream_is_steady(clockwork: Any, make: Make) -> None:
    """A call has 4 bytes an item for each size."""
    seen = make(url=clockwork.server.url, capacity=None, slices=5)
    for day, items in enumerate((5000, 5040, 4970, 5010, 4990, 5030), 3):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        await seen.add_many(f"{day} {i}" for i in range(items))
    info = await seen.info()
    assert [1] * 5 == [slice.parts for slice in info.slices]
    assert len({slice.capacity for slice in info.slices}) <= 2


async def test_an_idle_day_makes_no_small_slice(clockwork: Any, make: Make) -> None:
    """What counts is the last slice that held something."""
    seen = make(url=clockwork.server.url, capacity=None, slices=5)
    for day in (3, 6):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        await seen.add_many(f"{day} {i}" for i in range(20_000))
    newest = (await seen.info()).slices[-1]
    assert (newest.items > 19_990, newest.parts) == (True, 1)


async def test_the_first_slice_is_small_and_grows_in_larger_parts(make: Make) -> None:
    seen = make(capacity=None)
    await seen.add("a")
    assert (await seen.info()).bytes < 40_000
    await seen.add_many(f"item {i}" for i in range(60_000))
    newest = (await seen.info()).slices[-1]
    assert (newest.parts, newest.capacity) == (3, 10_000 + 40_000 + 160_000)


async def test_a_client_that_comes_later_takes_over_the_sizes(clockwork: Any, make: Make) -> None:
    """Also one whose first call is made as a slice begins, while another begins it."""
    seen = make(url=clockwork.server.url, capacity=None)
    await seen.add_many(f"item {i}" for i in range(15_000))
    clockwork.set("2019-06-04 12:00:00")
    later = make(url=clockwork.server.url, capacity=None)
    assert await seen.add("b")
    assert await later.add_many(["a", "b", "item 1"]) == [True, False, False]
    assert await later.contains_many(["a", "b", "item 1"]) == [True] * 3
    assert (await later.info()).slices[-1].capacity == sizing.capacity_after(15_000)


def test_a_client_that_is_ahead_begins_no_later_slice(client: redis.Redis, name: str) -> None:
    with TimeBloom(client, name) as seen:
        seen.add("a")
        clock = seen._exchange.clock
        clock.learn(clock.now() + 86_400_000)
        assert seen.add("b")
        assert client.get(f"{{{name}}}:layout").count("=") == 1


async def test_a_capacity_is_a_parameter_of_the_filter(make: Make) -> None:
    """Clients with one, and without, do not share a filter; ``reconfigure`` goes from one to the other, and back."""
    seen, sized = make(capacity=None), make(capacity=20_000)
    await seen.add_many(f"item {i}" for i in range(12_000))
    for other, before in ((sized, seen), (seen, sized)):
        with pytest.raises(Exception, match="capacity is"):
            await other.add("a")
        await other.reconfigure()
        with pytest.raises(Exception, match="capacity is"):
            await before.add("a")
        assert not any(await other.add_many(f"item {i}" for i in range(12_000)))
        await other.add_many(f"more {i}" for i in range(30_000))
    assert all(await seen.contains_many(f"more {i}" for i in range(30_000)))


@pytest.mark.parametrize(
    ("ours", "shown", "remedy"),
    [
        ({"capacity": 500}, "capacity is None there and 500 here", "reconfigure()"),
        ({"slices": 9, "error_rate": 0.01}, "error_rate is 0.0001 there and 0.01 here", "reconfigure()"),
        ({"capacity": None, "hashes": 3}, "hashes is 14 there and 3 here", "reconfigure()"),
        ({"granularity": "h", "slices": 24}, "granularity is 'd' there and 'h' here", "give the same, or take"),
    ],
)  # fmt: skip
async def test_a_mismatch_shows_what_was_given_and_ends_with_the_remedy(
    make: Make, ours: dict[str, Any], shown: str, remedy: str
) -> None:
    await make(capacity=None).add("a")
    with pytest.raises(ConfigMismatch) as caught:
        await make(**{"capacity": None, **ours}).add("a")
    text = str(caught.value)
    assert shown in text
    assert "bits" in caught.value.differences
    assert remedy in text
    assert text.endswith("or take another name")


async def test_shards_are_sized_each_by_itself(clockwork: Any, make: Make) -> None:
    seen = make(url=clockwork.server.url, capacity=None, shards=4)
    for day in (3, 4):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        await seen.add_many(f"{day} {i}" for i in range(40_000))
    newest = (await seen.info()).slices[-1]
    assert newest.items >= 39_990
    assert newest.bytes <= 1.3 * perfect_bytes(40_000)


def test_what_is_stored_is_read_back() -> None:
    for parameters in ({}, {"hashes": 3}, {"shards": 5, "slices": 31}):
        config = configure("news", capacity=None, **parameters)
        assert config.capacity is None
        assert from_stored("news", config.stored) == config


def test_a_filter_that_may_not_grow_needs_a_capacity() -> None:
    for store in (
        LocalBloom,
        lambda **given: TimeBloom.from_url("redis://localhost", "a", **given),
    ):
        with pytest.raises(
            ConfigError, match=r"^capacity: expected a whole number, because grow is False"
        ):
            store(grow=False)


def test_with_a_capacity_nothing_is_sized_by_the_last_slice() -> None:
    """Layouts are as they were before there were filters without one."""
    layout = Layout(configure("news", capacity=1000), "1557273600000000")
    assert layout.newest_before("20190508", ["20190508", "20190507"]) is None
    assert [layout.beginning(items).capacity for items in (0, 10, 1000, 1001, 5000)] == [
        1000
    ] * 3 + [2000, 8000]
