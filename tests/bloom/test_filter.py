"""What each verb answers, on a real Redis, through both classes; and from the local cache, known duplicates: no request, the same
answers, and not for too long.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigMismatch, TimeBloom
from tests.helpers.contents import snapshot
from tests.helpers.flows import flow_of, lose, replies_to
from tests.helpers.making import Make


async def test_info_counts_exactly(make: Make, client: redis.Redis) -> None:
    seen = make(slices=3, capacity=1000, error_rate=1e-3)
    await seen.add_many(map(str, range(1000)))
    info = await seen.info()
    current = info.slices[-1]
    assert (1000, 0) == (info.items, info.slices[0].items)
    key = (await seen.keys())[-1]
    are_set = client.bitcount(key) / (8 * client.strlen(key))
    assert 0.9 < current.fill_ratio / are_set < 1.1
    assert 0 < info.error_rate < 1e-3
    assert current.bytes == client.memory_usage(key)
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
        ({"bits": 2**17, "hashes": 4}, {"bits", "hashes"}),
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


@pytest.mark.parametrize("stored", [1, 4])
async def test_the_stored_number_of_shards_is_adopted(make: Make, stored: int) -> None:
    reader = make()
    assert not await reader.contains("a")
    await make(shards=stored).add("a")
    for seen in (reader, make()):
        assert [True, False] == [await seen.contains("a"), await seen.add("a")]
    assert await seen.add("b")
    assert (await seen.info()).shards == stored
    # An iterator can be read only once.
    assert [False, True] == await make().add_many(iter(["a", "c"]))
    assert [False, True] == [
        c is Claim.NEW for c in await make().claim_many(iter("ad"), notes=iter("xy"))
    ]


def test_a_commit_that_finds_no_server_is_tried_again(
    url: str, name: str, monkeypatch: Any
) -> None:
    """Also where it does not know the stored shards yet."""
    with (
        TimeBloom.from_url(url, name, shards=3) as other,
        TimeBloom.from_url(url, name, retry_for=0) as seen,
    ):
        other.add("another")
        with monkeypatch.context() as away:
            away.setattr(seen.client, "execute_command", _away)
            with pytest.raises(redis.ConnectionError):
                seen.commit("a")
        seen._send_heartbeat()
        assert other.contains("a")


def _away(*_: Any, **__: Any) -> Any:
    raise redis.ConnectionError("away")


def test_the_root_lives_as_long_as_the_newest_slice(clockwork: Any, name: str) -> None:
    """A client that goes on from day to day keeps its agreement alive, also where the clock is set back."""
    client = clockwork.client
    with TimeBloom.from_url(clockwork.server.url, name, slices=3, shards=2) as seen:
        for number, day in enumerate((3, 4, 5, 6, 7, 8, 7)):
            clockwork.set(f"2019-06-{day:02} 12:00:00")
            assert all(seen.add_many(f"{number} {i}" for i in range(20)))
            assert client.pttl(f"{{{name}}}:config") == max(map(client.pttl, client.keys("*")))
            assert client.pttl(f"{{{name}}}:config") < (3 + (number == 6)) * 86_400_000


NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY


def trips(client: redis.Redis) -> int:
    """Return the number of script calls that the server has had."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_cached_items_are_not_sent_again(make: Any, client: redis.Redis) -> None:
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


async def test_a_clear_of_another_client_is_noticed_in_time(
    make: Any,
) -> None:
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


async def test_the_cache_keeps_its_size(make: Any) -> None:
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


def test_the_cache_serves_a_slice_that_begins(clockwork: Any, open_one: Any) -> None:
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


def test_the_cache_says_nothing_about_fewer_slices(clockwork: Any, open_one: Any) -> None:
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
def test_an_answer_during_a_clear_is_not_cached(
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
