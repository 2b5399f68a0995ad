"""The features of an exact filter: TTLs to the millisecond, shards, buckets, and the sweep of expired entries. (What all stores do
alike: contract/test_stores.py. That its answers are those of a dict: ``tests/simulation``.)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import redis

from tbloom import ConfigMismatch
from tbloom.exact import ExactFilter
from tbloom.exact.config import ExactConfig
from tests.helpers.clock import Clockwork
from tests.helpers.contents import keys_of
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.making import Make
from tests.helpers.stores import EXACT


async def test_clear_works_with_any_stored_number_of_shards(
    make_exact: Make, client: redis.Redis, name: str
) -> None:
    items = [*map(str, range(500))]
    for stored, ours in ((3, 1), (1, 3), (2, 5)):
        await make_exact(shards=stored).add_many(items)
        seen = make_exact(shards=ours)
        for refused in (partial(seen.add, "x"), partial(seen.contains, "x"), seen.info):
            with pytest.raises(ConfigMismatch, match=f"shards is {stored} there and {ours} here"):
                await refused()
        await seen.clear()
        assert [] == keys_of(client, name)
        assert all(await seen.add_many(items))
        await seen.clear()


def test_the_stored_format_has_a_number() -> None:
    """Another format needs another number (docs/format.md)."""
    stored = '{"layout":1,"kind":"exact","hash":"blake2b_16","shards":3}'
    assert stored == ExactConfig("a", 3).stored


@pytest.mark.check
async def test_an_item_costs_less_than_40_bytes_in_redis(make_exact: Make) -> None:
    """16 of them are its fingerprint; expiry, listpack and key take the others. (Large buckets would take more.)"""
    seen = make_exact()
    await seen.add_many(map(str, range(20_000)))
    assert (await seen.info()).bytes < 20_000 * 40


@pytest.mark.parametrize("kind", ["config", "layout", "bucket"])
def test_items_that_the_server_has_dropped_are_new_again(own: redis.Redis, kind: str) -> None:
    """The server drops parameters or buckets. Other items stay seen, if they can still be found."""
    for shards in (1, 3):
        seen = PLANTED[EXACT].filled(own, shards)
        own.delete(*PLANTED[EXACT].keys(own, kind))
        told = seen.add_many(ITEMS)
        assert told == [kind != "config"] * len(ITEMS)
        assert not any(seen.add_many(ITEMS))
        assert not any(ExactFilter(own, "planted", shards=shards).add_many(ITEMS))
        assert len(ITEMS) == seen.info().items


START = datetime(2019, 6, 3, tzinfo=UTC)


def at(seconds: int) -> datetime:
    """Return the time this many seconds after the start of the server's clock."""
    return START + timedelta(seconds=seconds)


@pytest.fixture
def seen(clockwork: Clockwork, name: str) -> Iterator[ExactFilter]:
    with ExactFilter.from_url(clockwork.server.url, name) as seen:
        yield seen


async def test_expires_returns_when_an_item_will_be_forgotten(
    make_exact: Make, clockwork: Clockwork
) -> None:
    """Also in buckets that have been split. It returns None for an item that is not remembered."""
    seen = make_exact(url=clockwork.server.url, ttl=100)
    many = [f"item {i}" for i in range(500)]
    await seen.add("short", ttl=10)
    await seen.add_many(many)
    clockwork.set(at(50))
    await seen.add_many(["later", *many])
    expected = [START + timedelta(seconds=seconds) for seconds in (150, 100)]
    assert [*expected, None, None] == await seen.expires_many(["later", many[7], "never", "short"])
    assert {expected[1]} == {*await seen.expires_many(many)}
    assert [expected[0], None] == [await seen.expires("later"), await seen.expires("short")]


def test_an_expiry_is_exact_to_the_millisecond(clockwork: Clockwork, seen: ExactFilter) -> None:
    ttls = (0.5, 0.5006, 12.3456, 3600, 86_400.0 * 36_525)
    for ttl in ttls:
        assert seen.add(str(ttl), ttl=ttl)
    for ttl in ttls:
        expires = START + timedelta(milliseconds=round(1000 * ttl))
        for before, is_seen in (1, True), (0, False):
            clockwork.set(expires - timedelta(milliseconds=before))
            assert is_seen == seen.contains(str(ttl))


@pytest.mark.parametrize("shards", [1, 3])
def test_an_idle_filter_leaves_nothing(clockwork: Clockwork, name: str, shards: int) -> None:
    """A bucket expires a second after its last item, parameters and layout after twice the TTL, and tokens with their items."""
    with ExactFilter.from_url(clockwork.server.url, name, ttl=7200, shards=shards) as seen:
        seen.add_many(map(str, range(1000)))
        buckets = seen.info().buckets
        clockwork.set(
            at(7201) - timedelta(milliseconds=1)
        )  # a script may take as long, for which it is the same instant
        assert buckets == len(clockwork.client.keys("*:exact:*"))
        clockwork.set(at(7202))
        assert [] == clockwork.client.keys("*:exact:*")
        clockwork.set(at(14401))
        assert [] == clockwork.client.keys()
        assert seen.add("1")


@pytest.mark.parametrize("clients", [1, 2])
def test_parameters_outlive_the_items_of_every_client(
    clockwork: Clockwork, name: str, clients: int
) -> None:
    """Also where the first items were to be forgotten soon. Else a client with other parameters would be let in, and would not find
    the items."""
    url = clockwork.server.url
    own = [ExactFilter.from_url(url, name, shards=3) for _ in range(clients)]
    own[0].add_many((f"short {i}" for i in range(20)), ttl=10)  # in all shards
    own[-1].add_many((f"long {i}" for i in range(20)), ttl=3600)
    clockwork.set(at(3599))
    assert "long 7" in own[0]
    with pytest.raises(ConfigMismatch, match="shards is 3 there and 1 here"):
        ExactFilter.from_url(url, name).add("long 7")
    for seen in own:
        seen.close()


@pytest.mark.parametrize(
    ("size", "rounds"),
    [(1, 2), *(pytest.param(size, 10, marks=pytest.mark.check) for size in (1, 150))],
)
def test_at_most_a_tenth_of_the_entries_are_expired(
    clockwork: Clockwork, seen: ExactFilter, size: int, rounds: int
) -> None:
    """The filter held ten times as many items before, so it has many buckets with few items each."""
    seen.add_many(map(str, range(18_000)), ttl=60)
    seen.add_many((f"lasting {i}" for i in range(2000)), ttl=86400)
    # After so many calls of an object, singly or in batches.
    shares, number, calls = [], 0, 30 + seen.info().buckets // 32
    for _ in range(rounds):
        clockwork.go_on(61)
        for _ in range(calls):
            some = [f"then {number + i}" for i in range(size)]
            number += size
            seen.add_many(some, ttl=30)
        info = seen.info()
        shares.append(info.dead / info.items)
    print([f"{share:.3f}" for share in shares], info)
    assert max(shares) <= 0.1


def test_a_clock_that_is_set_back_forgets_nothing(clockwork: Clockwork, seen: ExactFilter) -> None:
    clockwork.set(at(1000))
    seen.add("a", ttl=10)
    clockwork.set(at(0))
    assert "a" in seen
    seen.add("b", ttl=10)
    clockwork.set(at(1009))
    assert seen.contains_many(["a", "b"]) == [True, False]
