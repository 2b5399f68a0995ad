"""Filters of several shards. (On a cluster: test_cluster.py.)"""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigMismatch, TimeBloom
from tests.helpers.making import Make


@pytest.mark.parametrize(("stored", "given"), [(1, 4), (4, 1), (4, 8)])
async def test_another_number_of_shards_is_refused(
    make: Make, client: redis.Redis, name: str, stored: int, given: int
) -> None:
    await make(shards=stored).add("a")
    before = sorted(client.keys(f"*{name}*"))
    for verb in ("add", "contains"):
        with pytest.raises(ConfigMismatch) as caught:
            await getattr(make(shards=given), verb)("b")
        assert {"shards": (stored, given)} == caught.value.differences
    assert before == sorted(client.keys(f"*{name}*"))


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
