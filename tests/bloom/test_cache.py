"""Known duplicates are answered from the local cache: no request, the same answers, and not for too long."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tests.helpers.flows import flow_of, lose, replies_to

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY


def trips(client: redis.Redis) -> int:
    """How many script calls the server has had."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_what_was_answered_new_or_seen_is_not_asked_again(
    make: Any, client: redis.Redis
) -> None:
    ours, theirs = make(cache_size=1000), make()
    await theirs.add_many(["b", "c", "d"])
    assert [True, False] == [await ours.add("a"), await ours.add("b")]
    assert await ours.contains("c")
    assert SEEN is await ours.claim("d")
    assert not await ours.contains("not there")
    before = trips(client)
    for _ in range(3):
        for item in ("a", "b", "c", "d"):
            assert not await ours.add(item)
            assert await ours.contains(item)
            assert SEEN is await ours.claim(item)
        assert [False] * 4 == await ours.add_many(["a", "b", "c", "d"])
        assert [True] * 4 == await ours.contains_many(["a", "b", "c", "d"])
        assert [SEEN] * 4 == await ours.claim_many(["a", "b", "c", "d"])
    assert before == trips(client)
    # Only a positive is kept.
    await theirs.add("not there")
    assert await ours.contains("not there")


async def test_a_clear_here_is_noticed_at_once_and_one_elsewhere_in_time(make: Any) -> None:
    ours, later = (make(cache_size=1000, cache_ttl=ttl) for ttl in (0.2, 3600))
    theirs = make()
    for item in ("x", "y", "a"):  # the third one by a usual call
        assert await ours.add(item)
    assert not await ours.add("a")
    await ours.clear()
    assert await ours.add("a")
    assert not await later.add("a")
    await theirs.clear()
    while not await ours.add("a"):
        pass
    assert await ours.contains("a")
    await theirs.clear()
    assert not await later.add("a")  # not noticed yet


async def test_the_size_is_kept(make: Any) -> None:
    ours = make(cache_size=100, capacity=10_000)
    await ours.add_many(map(str, range(5000)))
    bloom = ours._seen if hasattr(ours, "_seen") else ours
    assert 0 < len(bloom._cache._known.digests) <= 100
    assert not await ours.add("4999")
    assert 1 == bloom.cache_hits


def test_a_pending_answer_comes_from_the_server(client: redis.Redis, name: str) -> None:
    """The reply "new" is lost; another thread's call has put the item into the cache as seen."""
    with TimeBloom(client, name, cache_size=1000) as ours:
        ours.add("the filter's parameters")
        lose(client, flow_of(ours, "add", "a"))
        assert ours.contains("a")
        assert [True, False] == [ours.add("a"), ours.add("a")]


def test_it_serves_the_slice_that_begins(clockwork: Any, open_one: Any) -> None:
    """It knows nothing of what an older slice's answers were, and keeps the new one's."""
    ours = open_one(cache_size=1000, slices=1)
    ours.add("shows our client the time")
    ours.add_many(["a", "b"])
    assert [False, False] == ours.add_many(["a", "b"])
    assert 2 == ours.cache_hits
    clockwork.set("2019-06-04 00:00:00")
    assert not ours.contains("c")  # which shows our client the time
    assert [True, True] == [ours.add("a"), ours.add("b")]
    assert 2 == ours.cache_hits
    assert [False, False] == [ours.add("a"), ours.add("b")]
    assert 4 == ours.cache_hits


def test_it_says_nothing_of_fewer_slices(clockwork: Any, open_one: Any) -> None:
    """The item is known to be seen, but was seen the day before."""
    ours = open_one(cache_size=1000)
    ours.add("a")
    clockwork.set("2019-06-04 12:00:00")
    for _ in range(3):
        assert ours.contains("a")
    assert ours.cache_hits
    assert not ours.contains("a", within=1)
    assert NEW is ours.claim("a", within=1)
    assert ours.add("a", within=1)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("verb", ["add", "contains", "claim"])
def test_an_answer_that_is_on_its_way_during_a_clear_is_not_cached(
    client: redis.Redis, name: str, verb: str, shards: int
) -> None:
    """The object that clears is shared with the thread that asks."""
    ours, theirs = (TimeBloom(client, name, shards=shards, cache_size=n) for n in (100, 0))
    ours.add_many(f"item {i}" for i in range(30))  # meets all shards
    theirs.add("a")
    flow = flow_of(ours, verb, "a")
    on_their_way = replies_to(client, next(flow))
    ours.clear()
    with pytest.raises(StopIteration) as answer:
        flow.send(on_their_way)
    assert answer.value.value in (False, True, Claim.SEEN)  # as it was
    assert not ours.contains("a")
    assert ours.add("a")
