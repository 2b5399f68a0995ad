"""A filter without a window, which forgets nothing; and ``keep``: an item that leaves the window earlier than the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import AsyncTimeBloom, Claim, FilterFull, TimeBloom
from tests.helpers.commands import tbloom
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of

FOREVER: dict[str, Any] = {"granularity": None, "capacity": 100}
ITEMS = [f"item {i}" for i in range(1000)]


def lasting(client: redis.Redis, name: str) -> dict[Any, int]:
    """The TTL of each of the filter's keys (ms); calls' answers left out."""
    return {key: client.pttl(key) for key in keys_of(client, name)}


@pytest.mark.parametrize("shards", [1, 3])
def test_no_key_but_lanes_has_a_ttl(
    client: redis.Redis, name: str, url: str, shards: int, tmp_path: Path
) -> None:
    """At any moment of its life: where it grows, is claimed from, restored and reconfigured."""
    seen = TimeBloom(client, name, shards=shards, **FOREVER)
    for verb in (
        lambda: seen.add("a"),
        lambda: seen.add_many(ITEMS),
        lambda: seen.claim("b"),
        lambda: seen.commit("b"),
        lambda: seen.import_many(["c"]),
        lambda: TimeBloom(
            client, name, shards=shards, granularity=None, capacity=500
        ).reconfigure(),
    ):
        verb()
        ttls = lasting(client, name)
        assert len(ttls) > 2
        assert {-1} == {*ttls.values()}, ttls
    file = str(tmp_path / "filter")
    assert tbloom("export", "--url", url, name, file).returncode == 0
    assert tbloom("restore", "--url", url, file, "--name", f"{name}-copy").returncode == 0
    copy = TimeBloom(client, f"{name}-copy", shards=shards, granularity=None, capacity=500)
    assert not any(copy.add_many([*ITEMS, "a", "b", "c"]))
    assert {-1} == {*lasting(client, f"{name}-copy").values()}
    copy.clear()
    assert {} == lasting(client, f"{name}-copy")


def test_it_forgets_nothing_in_a_lifetime(clockwork: Any, name: str) -> None:
    clockwork.set("2019-06-03 12:00:00")
    with TimeBloom.from_url(clockwork.server.url, name, **FOREVER) as seen:
        assert all(seen.add_many(ITEMS))
        assert Claim.NEW is seen.claim("claimed", note="its note")
        clockwork.set("2036-02-29 12:00:00")
        assert not any(seen.add_many(ITEMS))
        with TimeBloom.from_url(clockwork.server.url, name, **FOREVER) as other:
            assert ["its note"] == other.take_over()
        assert ("all", None, None) == seen.last_seen(ITEMS[0])
        assert seen.warnings() == []


def test_it_grows_and_keeps_the_error_rate(client: redis.Redis, name: str) -> None:
    """It was made 100 times too small."""
    seen = TimeBloom(client, name, granularity=None, capacity=200, error_rate=0.01)
    batches = ([f"item {start + i}" for i in range(100)] for start in range(0, 20_000, 100))
    new = sum(sum(seen.add_many(batch)) for batch in batches)
    assert new > 20_000 * 0.99
    [whole] = seen.info().slices
    assert (whole.label, whole.start, whole.expires, whole.items) == ("all", None, None, new)
    assert whole.parts > 3
    found = sum(seen.contains_many(f"never {i}" for i in range(20_000)))
    assert found < 20_000 * 0.011
    full = TimeBloom(client, f"{name}-full", granularity=None, capacity=10, grow=False)
    with pytest.raises(FilterFull):
        full.add_many(ITEMS)


SLICES = 4


def test_a_commit_that_failed_is_repeated_for_the_same_time(
    clockwork: Any, open_one: Callable[..., TimeBloom]
) -> None:
    seen, other = open_one(slices=SLICES), open_one(slices=SLICES)
    for item, keep in (("a", 1), ("b", None)):
        seen.claim(item)
        lost = flow_of(seen, "commit", item, keep)
        next(lost)
        lost.close()
    seen._send_heartbeat()
    assert [True, True] == other.contains_many(["a", "b"])
    clockwork.set("2019-06-04 00:00:00")
    assert [False, True] == other.contains_many(["a", "b"])


async def test_tasks_with_other_times_go_in_batches_of_their_own(url: str, name: str) -> None:
    """Each item leaves with the slice that its own caller asked for."""
    async with AsyncTimeBloom.from_url(url, name, slices=SLICES, capacity=10_000) as seen:
        keeps = {f"item {i}": (None, 1, 2, 4)[i % 4] for i in range(400)}
        assert all(await asyncio.gather(*(seen.add(key, keep=keep) for key, keep in keeps.items())))
        places = await seen.last_seen_many(keeps)
        labels = [slice.label for slice in (await seen.info()).slices]
        found = Counter(
            (keep or SLICES, labels.index(place.label))
            for keep, place in zip(keeps.values(), places, strict=True)
            if place
        )
        assert found == {(1, 0): 100, (2, 1): 100, (4, 3): 200}
