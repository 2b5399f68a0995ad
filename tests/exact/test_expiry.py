"""When an exact filter forgets: each item to the millisecond, by the server's clock; and what is dead is swept."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from tbloom.exact import ExactFilter
from tbloom.exact.info import ExactInfo
from tests.helpers.making import Make

START = datetime(2019, 6, 3, tzinfo=timezone.utc)
#: 1,000,000 in the long form, `TBLOOM_FAULTS=full`.
ITEMS = 1_000_000 if os.environ.get("TBLOOM_FAULTS") == "full" else 100_000


class Clock:
    """The server's clock, in seconds after START."""

    def __init__(self, clockwork: Any) -> None:
        self._clockwork = clockwork
        self.url = clockwork.server.url
        self.now = 0

    def set(self, now: int) -> None:
        self.now = now
        self._clockwork.set(START + timedelta(seconds=now))


@pytest.fixture
def clock(clockwork: Any) -> Clock:
    return Clock(clockwork)


@pytest.fixture
def seen(clock: Clock, name: str) -> Iterator[ExactFilter]:
    with ExactFilter.from_url(clock.url, name) as seen:
        yield seen


async def test_an_item_is_seen_until_its_ttl_has_passed_and_not_a_second_longer(
    make_exact: Make, clock: Clock
) -> None:
    """Whichever of the two gave it: the filter, or the call; its other items have their own."""
    seen = make_exact(url=clock.url, ttl=100)
    assert await seen.add("default")
    assert await seen.add("short", ttl=timedelta(seconds=10))
    assert [True, True] == await seen.add_many(["long", "longer"], ttl=1000.0)
    items = ["short", "default", "long"]
    for now, held in ((9, 3), (10, 2), (99, 2), (100, 1), (999, 1), (1000, 0)):
        clock.set(now)
        assert [i >= 3 - held for i in range(3)] == await seen.contains_many(items)
        assert held + (held > 0) == (await seen.info()).items
    assert [True] * 3 == await seen.add_many(items)


async def test_an_item_that_is_seen_again_expires_when_it_would_have(
    make_exact: Make, clock: Clock
) -> None:
    seen = make_exact(url=clock.url)
    await seen.add("a", ttl=10)
    clock.set(9)
    assert await seen.add("a", ttl=1000) is False
    clock.set(10)
    assert await seen.contains("a") is False
    assert await seen.add("a", ttl=10) is True
    clock.set(19)
    assert await seen.add("a", ttl=10) is False


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


def test_whose_clock_is_wrong_makes_no_difference(
    clock: Clock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's: the filter's beginning is by it, in 1970 here, or in 2200."""
    for year in (0, 230):
        wrong = year * 31_556_952 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda wrong=wrong: wrong)
        clock.set(clock.now + 1)
        with ExactFilter.from_url(clock.url, f"{name}-{year}", ttl=10) as seen:
            assert [True, False] == [seen.add("a"), seen.add("a")]
            clock.set(clock.now + 9)
            assert "a" in seen
            assert 1 == seen.info().items
            clock.set(clock.now + 1)
            assert "a" not in seen
            assert seen.add("a")


def test_a_clock_that_is_set_back_forgets_nothing(clock: Clock, seen: ExactFilter) -> None:
    clock.set(1000)
    seen.add("a", ttl=10)
    clock.set(0)
    assert "a" in seen
    seen.add("b", ttl=10)
    clock.set(1009)
    assert seen.contains_many(["a", "b"]) == [True, False]


@pytest.mark.parametrize("shards", [1, 3])
def test_an_idle_filter_leaves_nothing(clock: Clock, name: str, shards: int) -> None:
    """A bucket goes a second after its last item, parameters and layout after twice the time to live, tokens
    after an hour."""
    with (
        ExactFilter.from_url(clock.url, name, ttl=3600, shards=shards) as seen,
        redis.Redis.from_url(clock.url) as client,
    ):
        seen.add_many(map(str, range(1000)))
        clock.set(3602)
        assert [] == [*client.scan_iter("*:exact:*")]
        clock.set(7201)
        assert [] == client.keys()
        assert seen.add("1")


@pytest.mark.parametrize("shards", [1, 3])
def test_parameters_live_as_long_as_any_item(clock: Clock, name: str, shards: int) -> None:
    """And so the filter is guarded, and its items found, whenever they were added."""
    with ExactFilter.from_url(clock.url, name, ttl=100, shards=shards) as seen:
        for now in range(0, 1000, 50):
            clock.set(now)
            assert seen.add(f"{now}")
            clock.set(now + 49)
            held = [f"{old}" for old in range(max(0, now - 50), now + 1, 50)]
            assert all(seen.contains_many(held))
            with ExactFilter.from_url(clock.url, name, shards=shards) as other:
                assert all(other.contains_many(held))
                assert other.info().items == len(held)


def _calls_until_swept(seen: ExactFilter, most: int) -> tuple[int, ExactInfo]:
    """How many calls, of an item each, it takes until of ten entries at most one is dead."""
    for call in range(most + 1):
        if call % 10 == 0:
            info = seen.info()
            if info.dead <= info.items / 10:
                return call, info
        seen.add(f"after {call}", ttl=86400)
    return most, seen.info()


def _promised(info: ExactInfo) -> int:
    """After any number of adds by one object, singly or in batches, at most a tenth of the living is dead."""
    return 30 + info.buckets // 32


@pytest.mark.busy
@pytest.mark.timeout(3600)
@pytest.mark.check
def test_a_million_items_with_mixed_ttls_are_right_to_the_second(
    clock: Clock, seen: ExactFilter
) -> None:
    """Nine of ten live for seconds, the others for up to a day: while they come, while they go, after a long
    time without a call, and while others come."""
    rng = random.Random(1)
    ttls = [rng.randrange(1, 60) if rng.random() < 0.9 else rng.randrange(80_000, 86_400) for _ in range(ITEMS)]  # fmt: skip
    expires: list[int] = []
    step = ITEMS // 10
    for begin in range(0, ITEMS, step):
        clock.set(clock.now + 7)
        by_ttl: dict[int, list[str]] = {}
        for item in range(begin, begin + step):
            by_ttl.setdefault(ttls[item], []).append(f"{item}")
            expires.append(clock.now + ttls[item])
        for ttl, items in by_ttl.items():
            assert all(seen.add_many(items, ttl=ttl))
        _check(seen, expires, clock, rng)
        info = seen.info()
        print(f"after {clock.now} s: {info}")
        assert info.dead <= info.items / 10
    for now in (clock.now + 1, clock.now + 30, clock.now + 3600):
        clock.set(now)
        _check(seen, expires, clock, rng)
    before = seen.info()
    calls, info = _calls_until_swept(seen, _promised(before))
    print(f"before: {before}\nafter {calls} calls (promised: {_promised(before)}): {info}")
    assert before.dead > before.items
    assert info.dead <= info.items / 10
    for now in (79_000, 83_000, 86_000, 86_500):
        clock.set(now)
        _check(seen, expires, clock, rng)


def _check(seen: ExactFilter, expires: list[int], clock: Clock, rng: random.Random) -> None:
    """Counted exactly; and of the items, those near their ends and some others are told as they are."""
    near = [i for i, end in enumerate(expires) if abs(end - clock.now) <= 1]
    asked = rng.sample(near, min(len(near), 10_000)) + rng.sample(range(len(expires)), 2000)
    told = seen.contains_many([f"{i}" for i in asked])
    assert [expires[i] > clock.now for i in asked] == told
    added_after = seen.contains_many(f"after {call}" for call in range(2000))
    live = sum(end > clock.now for end in expires) + sum(added_after)
    assert live == seen.info().items


@pytest.mark.busy
@pytest.mark.parametrize(
    ("size", "rounds"),
    [(1, 2), *(pytest.param(size, 10, marks=pytest.mark.check) for size in (1, 150))],
)
def test_what_is_dead_stays_a_tenth_while_others_come(
    clock: Clock, seen: ExactFilter, size: int, rounds: int
) -> None:
    """In a filter that held ten times as much: its buckets are many, with few items in each."""
    seen.add_many(map(str, range(18_000)), ttl=60)
    seen.add_many((f"lasting {i}" for i in range(2000)), ttl=86400)
    shares, number, calls = [], 0, _promised(seen.info())
    for _ in range(rounds):
        clock.set(clock.now + 61)
        for _ in range(calls):
            some = [f"then {number + i}" for i in range(size)]
            number += size
            seen.add_many(some, ttl=30)
        info = seen.info()
        shares.append(info.dead / info.items)
    print([f"{share:.3f}" for share in shares], info)
    assert max(shares) <= 0.1
