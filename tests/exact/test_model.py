"""Exact filters against a dict, while the clock goes on; when they forget, to the millisecond; and what is dead is swept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from tbloom.exact import ExactFilter, dispatcher
from tbloom.exact.info import ExactInfo
from tests.helpers.making import Make
from tests.helpers.servers import Clockwork

START = datetime(2019, 6, 3, tzinfo=timezone.utc)
ITEMS = 400
VERBS = ["add", "add_many", "discard", "look", "wait", "clear", "join"]
TTLS = [1, 2, 5, 30, 300, 3000, 86_400, 10_000_000]


class Model:
    """What a filter must answer."""

    def __init__(self) -> None:
        self.now = 0
        self.expires: dict[str, int] = {}

    def holds(self, item: str) -> bool:
        return self.expires.get(item, 0) > self.now

    def discard(self, item: str) -> bool:
        was_held = self.holds(item)
        self.expires.pop(item, None)
        return was_held

    def add(self, item: str, ttl: int = 60) -> bool:
        if self.holds(item):
            return False
        self.expires[item] = self.now + ttl
        return True


@pytest.mark.parametrize(
    ("shards", "steps"), [(1, 200), (3, 200), pytest.param(3, 1500, marks=pytest.mark.check)]
)
def test_every_sequence_of_verbs_is_answered_as_by_a_dict(
    clockwork: Any, name: str, monkeypatch: pytest.MonkeyPatch, shards: int, steps: int
) -> None:
    """Buckets hold three items here, so that they are split all the time."""
    monkeypatch.setattr(dispatcher, "_MAX_ENTRIES", 3)
    rng, model, url = random.Random(steps), Model(), clockwork.server.url

    def client() -> ExactFilter:
        return ExactFilter.from_url(url, name, ttl=60, shards=shards)

    clients = [client() for _ in range(3)]
    for step in range(steps):
        seen, ttl = rng.choice(clients), rng.choice(TTLS)
        items = [f"{rng.randrange(ITEMS)}" for _ in range(rng.choice([1, 3, 30, 200]))]
        match rng.choices(VERBS, [40, 15, 10, 15, 9, 1, 2])[0]:
            case "add":
                given = () if ttl == TTLS[-1] else (ttl,)
                assert model.add(items[0], *given) is seen.add(items[0], *given), step
            case "add_many":
                assert [model.add(item, ttl) for item in items] == seen.add_many(items, ttl), step
            case "discard":
                assert [*map(model.discard, items)] == seen.discard_many(items), step
            case "look":
                assert [*map(model.holds, items)] == seen.contains_many(items), step
                assert sum(map(model.holds, model.expires)) == seen.info().items
            case "wait":
                model.now += rng.choice([1, 1, 2, 10, 100, 2000])
                clockwork.set(START + timedelta(seconds=model.now))
            case "clear":
                model.expires.clear()
                seen.clear()
            case "join":
                place = rng.randrange(3)
                clients[place].close()
                clients[place] = client()
    everything = [f"{i}" for i in range(ITEMS)]
    assert [*map(model.holds, everything)] == client().contains_many(everything)


def at(seconds: int) -> datetime:
    """So long after the start of the server's clock."""
    return START + timedelta(seconds=seconds)


@pytest.fixture
def seen(clockwork: Clockwork, name: str) -> Iterator[ExactFilter]:
    with ExactFilter.from_url(clockwork.server.url, name) as seen:
        yield seen


async def test_an_item_says_when_it_is_forgotten(make_exact: Make, clockwork: Clockwork) -> None:
    """Also in buckets that have been split; and only while it is remembered."""
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


def test_an_expiry_is_exact_to_the_millisecond(url: str, name: str) -> None:
    """Told by the entry: the clock that libfaketime makes has whole seconds. The bucket outlives it."""
    with ExactFilter.from_url(url, name) as seen, redis.Redis.from_url(url) as client:
        for ttl in (0.5, 0.5004, 0.5006, 12.3456, 3600, 86400.0 * 36525):
            before = _milliseconds(client)
            seen.add(f"{ttl}", ttl=ttl)
            after = _milliseconds(client)
            [bucket] = client.keys(f"{{{name}}}:exact:*")
            expires = max(score for _, score in client.zrange(bucket, 0, -1, withscores=True))
            expires += int(bucket.split(b":")[2]) // 1000
            assert before <= expires - round(ttl * 1000) <= after
            assert client.pttl(bucket) + _milliseconds(client) >= expires


def _milliseconds(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds * 1000 + microseconds // 1000)


@pytest.mark.parametrize("shards", [1, 3])
def test_an_idle_filter_leaves_nothing(clockwork: Clockwork, name: str, shards: int) -> None:
    """A bucket goes a second after its last item, parameters and layout after twice the time to live, tokens
    after an hour."""
    with (
        ExactFilter.from_url(clockwork.server.url, name, ttl=3600, shards=shards) as seen,
        redis.Redis.from_url(clockwork.server.url) as client,
    ):
        seen.add_many(map(str, range(1000)))
        clockwork.set(at(3602))
        assert [] == [*client.scan_iter("*:exact:*")]
        clockwork.set(at(7201))
        assert [] == client.keys()
        assert seen.add("1")


def _promised(info: ExactInfo) -> int:
    """After any number of adds by one object, singly or in batches, at most a tenth of the living is dead."""
    return 30 + info.buckets // 32


@pytest.mark.busy
@pytest.mark.parametrize(
    ("size", "rounds"),
    [(1, 2), *(pytest.param(size, 10, marks=pytest.mark.check) for size in (1, 150))],
)
def test_what_is_dead_stays_a_tenth_while_others_come(
    clockwork: Clockwork, seen: ExactFilter, size: int, rounds: int
) -> None:
    """In a filter that held ten times as much: its buckets are many, with few items in each."""
    seen.add_many(map(str, range(18_000)), ttl=60)
    seen.add_many((f"lasting {i}" for i in range(2000)), ttl=86400)
    shares, number, calls = [], 0, _promised(seen.info())
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
