"""A filter without a capacity: each slice is made for what the last one held."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom import sizing
from tbloom.bloom.config import configure

RATE = 1e-3
check = pytest.mark.check
STREAMS = [
    *((2000, change) for change in (0.9, 1.0, 1.1)),
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
    others = max(20_000, items)
    assert sum(seen.contains_many(f"other {i}" for i in range(others))) <= 2 * RATE * others


@pytest.mark.parametrize("capacity", [None, 1000])
def test_a_part_has_room_for_the_items_in_hand(url: str, name: str, capacity: int | None) -> None:
    """Of a batch, that of a slice which begins, or that by which one grows."""
    with TimeBloom.from_url(url, name, capacity=capacity) as seen:
        seen.add_many(f"first {i}" for i in range(30_000))
        before = seen.info().slices[-1].parts
        assert before == (1 if capacity is None else 2)
        seen.add_many(f"second {i}" for i in range(200_000))
        current = seen.info().slices[-1]
        assert current.parts == before + 1
        assert 230_000 * 0.999 < current.items <= 230_000 <= current.capacity
        assert current.error_rate <= seen.config.error_rate / seen.config.slices


def test_a_part_has_room_for_the_items_that_are_expected(url: str, name: str) -> None:
    """What is added in many calls; and later ones are not expected any more."""
    with TimeBloom.from_url(url, name) as seen:
        seen.expect(50_000)
        for start in range(0, 50_000, 1000):
            seen.add_many(str(i) for i in range(start, start + 1000))
        [current] = seen.info().slices[-1:]
        assert (1, True) == (current.parts, 50_000 <= current.capacity < 60_000)
        seen.add_many(str(i) for i in range(50_000, 60_000))
        assert seen.info().slices[-1].parts > 1
