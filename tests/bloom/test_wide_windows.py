"""A window of 672 quarter-hours whose slices have all grown: a call stays small, and its probes are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import Config, configure
from tbloom.bloom.hasher import digest
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.tokens import LanePool
from tests.helpers.flows import keys_of

SLICES = 672
PARAMETERS: dict[str, Any] = {"granularity": "15min", "slices": SLICES, "capacity": 50}


def grown(config: Config, now: int, parts: int) -> SliceCalls:
    """The calls of a client that knows that each slice has so many parts."""
    labels, entries = SliceCalls(config, now, {}).labels, ""
    for label in labels[::-1]:
        for _ in range(parts - 1):
            entries = Layout(config, entries).grown(label, [label, labels[-1]])
    return SliceCalls(
        config, now, {0: Layout(config, f"1557273600000000.1557277200123456;{entries}")}
    )


@pytest.fixture(scope="module")
def calls() -> SliceCalls:
    """The calls where each slice has two parts; the filter's name has four letters."""
    return grown(configure("news", **PARAMETERS), 1557273600000, 2)


@pytest.fixture
def planted(url: str, name: str) -> Iterator[tuple[redis.Redis, SliceCalls]]:
    """A stored filter whose slices have two parts each, of which only the current ones hold items."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        seconds, micros = client.time()
        calls = grown(configure(name, **PARAMETERS), seconds * 1000 + micros // 1000, 2)
        layout = calls.layout(0)
        state = calls.config.keys.state(0)
        client.hset(state, "layout", f"{layout.version};{layout.entries}")
        client.expire(state, 600)
        client.set(calls.config.keys.config(0), calls.config.stored, ex=600)
        yield client, calls


def test_the_request_of_an_add_is_small(calls: SliceCalls) -> None:
    """Less than 40 KB; what is not the names of keys has at most 1 KB."""
    call = calls.add(SLICES, Batch([digest("a")], token=LanePool().take()))
    assert len(keys_of(call)) == 2 + 2 * SLICES
    packed = b"".join(redis.Connection().pack_command(*call.words))
    assert len(packed) < 40 * 1024
    names = sum(len(f"${len(key)}\r\n{key}\r\n") for key in keys_of(call)[1:])
    assert len(packed) - names < 1024


def test_items_are_new_once_in_a_wide_window(
    planted: tuple[redis.Redis, SliceCalls], url: str, name: str
) -> None:
    """In the slice that they were added to, as all other verbs find them."""
    client, calls = planted
    items, old = [f"item {i}" for i in range(10)], calls.labels[300]
    with TimeBloom.from_url(url, name, **PARAMETERS) as seen:
        assert seen.import_many(["old"], old) == 1
        assert all(seen.add_many(items))
        assert not any(seen.add_many([*items, "old"]))
        assert [True] * 11 + [False] == seen.contains_many([*items, "old", "other"])
        found = seen.last_seen("old")
        assert found is not None
        assert found.label == old
        assert client.exists(calls.config.keys.slice(old, 0, 1))
        seen.clear()
