"""What each verb answers, on a real Redis, through both classes."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigError, ConfigMismatch, TimeBloom
from tbloom.bloom.hasher import columns_of, digest
from tbloom.bloom.layout import Part
from tbloom.bloom.sizing import COLUMNS, block_step
from tests.helpers.contents import snapshot
from tests.helpers.making import Make
from tests.helpers.places import block_of


async def test_info_counts_exactly(make: Make, client: redis.Redis) -> None:
    seen = make(slices=3, capacity=1000, error_rate=1e-3)
    await seen.add_many(map(str, range(1000)))
    info = await seen.info()
    current = info.slices[-1]
    assert (1000, 0) == (info.items, info.slices[0].items)
    assert 0.25 < current.fill_ratio < 0.45
    assert 0 < info.error_rate < 1e-3
    assert current.bytes == client.memory_usage((await seen.keys())[-1])
    assert current.start + timedelta(days=1) == current.end
    # The key's TTL ends when the slice leaves the window.
    assert current.end + timedelta(days=2) - current.expires < timedelta(seconds=1)
    assert info.slices[0].expires is None


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        ({"slices": 8}, {"slices", "bits"}),
        ({"error_rate": 0.99e-4}, {"error_rate"}),  # as many blocks
        ({"granularity": "h"}, {"granularity"}),
        ({"capacity": 2000}, {"capacity", "bits"}),
        ({"error_rate": 1e-3}, {"error_rate", "bits", "hashes"}),
        ({"tz": "Europe/Berlin"}, {"tz"}),
        ({"hashes": 4}, {"bits", "hashes"}),
        ({"shards": 4}, {"shards"}),
    ],
)
async def test_a_client_with_other_parameters_is_refused_and_changes_nothing(
    make: Make, client: redis.Redis, name: str, other: dict[str, Any], differing: set[str]
) -> None:
    seen = make()
    await seen.add("a")
    before = snapshot(client, name)
    for verb in ("add", "contains"):
        with pytest.raises(ConfigMismatch) as caught:
            await getattr(make(**other), verb)("b")
        assert differing == set(caught.value.differences)
        assert name in str(caught.value)
    with pytest.raises(ConfigMismatch):
        await make(**other).info()
    assert before == snapshot(client, name)


@pytest.mark.parametrize("layout", [2, 4])
def test_a_filter_of_another_format_is_refused_and_stays(
    client: redis.Redis, name: str, layout: int
) -> None:
    """An error says so; also clear() does not know what there is."""
    with TimeBloom(client, name, capacity=1000) as seen:
        stored = {**json.loads(seen.config.stored), "layout": layout}
        for key in (f"{{{name}}}:config",):
            client.set(key, json.dumps(stored), ex=600)
        before = snapshot(client, name)
        for verb in (partial(seen.add, "a"), seen.info, seen.reconfigure):
            with pytest.raises(ConfigMismatch, match=f"layout is {layout} there"):
                verb()
        with pytest.raises(ConfigError, match="can read in"):
            seen.clear()
        with pytest.raises(ConfigError, match="label: expected that of a live slice: "):
            seen.import_many(["a"], "19990101")
        assert before == snapshot(client, name)


@pytest.mark.parametrize("hashes", [1, 6, 11, 12, 20])
def test_an_item_is_seen_only_if_all_its_columns_are_set(
    client: redis.Redis, url: str, name: str, hashes: int
) -> None:
    """And a part has its full size from the first item on."""
    with TimeBloom.from_url(url, name, capacity=100, hashes=hashes) as seen:
        assert seen.add("a")
        key, config, known = seen.keys()[-1], seen.config, digest("a")
        part = Part(config.capacity, config.bits, config.hashes)
        assert config.bits // 8 == client.strlen(key)
        row = block_of(known, part.blocks) * block_step(config.hashes) * COLUMNS
        for column in columns_of(known, 2)[:hashes]:
            assert 1 == client.setbit(key, row + column, 0)
            assert not seen.contains("a")
            client.setbit(key, row + column, 1)
            row += COLUMNS
        assert seen.contains("a")
        assert hashes == client.bitcount(key)


@pytest.mark.parametrize("shards", [1, 3])
def test_info_after_an_earlier_one_is_the_same_as_a_first_one(
    url: str, name: str, shards: int
) -> None:
    """After no change, new items, growth, and clear()."""
    with TimeBloom.from_url(url, name, capacity=300, shards=shards) as seen:
        earlier = seen.info()
        for number in (0, 10, 100, 1000):
            seen.add_many(f"{number} {i}" for i in range(number))
            again, afresh = seen.info(earlier), seen.info()
            # Times may differ by a millisecond.
            assert _without_expiry(again) == _without_expiry(afresh)
            assert (again.slices[-1].expires is None) == (not again.items)
            earlier = again
        assert earlier.items > 1000
        assert earlier.slices[-1].parts > 1
        seen.clear()
        assert seen.info(earlier) == seen.info()


def _without_expiry(info: object) -> str:
    return re.sub(r"expires=(None|datetime\.datetime\(.*?\)(?=, items))", "", repr(info))


@pytest.mark.parametrize("stored", [1, 4])
async def test_without_a_number_the_stored_one_is_taken(make: Make, stored: int) -> None:
    await make(shards=stored).add("a")
    seen = make()
    assert [True, False, True] == [
        await seen.contains("a"),
        await seen.add("a"),
        await seen.add("b"),
    ]
    assert (await seen.info()).shards == stored
    # An iterator can be read only once, and the first request is refused.
    assert [False, True] == await make().add_many(iter(["a", "c"]))
    assert [False, True] == [
        c is Claim.NEW for c in await make().claim_many(iter("ad"), notes=iter("xy"))
    ]


def test_the_root_lives_as_long_as_the_newest_slice(clockwork: Any, name: str) -> None:
    """A client that goes on from day to day keeps its agreement alive."""
    with (
        TimeBloom.from_url(clockwork.server.url, name, slices=3, shards=2) as seen,
        redis.Redis.from_url(clockwork.server.url, decode_responses=True) as client,
    ):
        for day in range(3, 9):
            clockwork.set(f"2019-06-{day:02} 12:00:00")
            assert all(seen.add_many(f"{day} {i}" for i in range(20)))
            assert client.pttl(f"{{{name}}}:config") == max(map(client.pttl, client.keys("*")))
            assert client.pttl(f"{{{name}}}:config") < 3 * 86_400_000


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "commit"])
async def test_a_shard_without_parameters_asks_for_them(make: Make, verb: str) -> None:
    """The filter was cleared and made anew, by an add to another of its shards."""
    old = make(shards=2, capacity=1000)
    for i in range(20):
        await old.add(f"item {i}")
    new = make(shards=2, capacity=2000)
    await new.clear()
    await new.add("item 0")
    for i in range(20):
        with pytest.raises(ConfigMismatch, match="capacity is 2000 there and 1000 here"):
            await getattr(old, verb)(f"item {i}")
