"""A filter without a window: one slice, no TTL, nothing is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tests.helpers.commands import tbloom
from tests.helpers.contents import keys_of

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
