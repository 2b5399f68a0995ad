"""Distinct counters with slices: what they count, and when that leaves, by the server's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from tbloom import ConfigError
from tbloom.distinct import DistinctCounter
from tests.helpers.making import Make

MONDAY = datetime(2019, 6, 3, tzinfo=timezone.utc)  # when the server's clock begins
DAY = timedelta(days=1)
DAILY = {"granularity": "d", "slices": 7}


@pytest.fixture
def daily(clockwork: Any, name: str) -> Iterator[DistinctCounter]:
    with DistinctCounter.from_url(clockwork.server.url, "a", name, **DAILY) as counter:
        yield counter


@pytest.fixture
def server(clockwork: Any) -> Iterator[redis.Redis]:
    """The server whose clock the test sets."""
    with redis.Redis.from_url(clockwork.server.url, decode_responses=True) as client:
        yield client


async def test_a_log_of_past_days_is_counted_by_day(
    clockwork: Any, server: redis.Redis, make_counter: Make, name: str
) -> None:
    """By an instant, a day in the counter's zone, or a label; each slice leaves as if it had been counted in time."""
    clockwork.set(MONDAY + 6 * DAY + timedelta(hours=12))
    users = make_counter(url=clockwork.server.url, **DAILY, tz="America/New_York")
    assert [True, True] == await users.add_many(["x", "y"], at=date(2019, 6, 4))
    assert [False, True] == [
        await users.add("x", at="20190604"),
        await users.add("x", at="20190605"),
    ]
    assert await users.add("late", at=datetime(2019, 6, 5, 3, 59, tzinfo=timezone.utc))
    assert not await users.add("late", at=date(2019, 6, 4))
    assert [True, False] == [
        await users.add("x"),
        await users.add("x", at=MONDAY + 6 * DAY + timedelta(hours=13)),
    ]
    assert [3, 1, 0, 0, 0, 1] == [one.count for one in (await users.info()).slices[1:]]
    assert 3 == await users.count()
    ends = {
        f"chunks:a:201906{day:02}": MONDAY + (day + 4) * DAY + timedelta(hours=4)
        for day in (4, 5, 9)
    }
    assert ends == _ends(server, name)


async def test_what_is_outside_the_window_is_refused_by_the_server_s_clock(
    clockwork: Any, make_counter: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client's clock says; and if the slice leaves before the call arrives."""
    clockwork.set(MONDAY + 6 * DAY)
    for off in (0, -4000, 4000):  # days
        monkeypatch.setattr(
            time, "time_ns", lambda off=off: int((MONDAY + (6 + off) * DAY).timestamp()) * 10**9
        )
        for wrong in ("20190602", MONDAY - DAY, date(2019, 6, 10), MONDAY + (off or -9) * DAY):
            users = make_counter(f"at {off}", url=clockwork.server.url, **DAILY)
            with pytest.raises(
                ConfigError,
                match=r"^at: expected an instant in a slice of the window, '20190603' to '20190609', got",
            ):
                await users.add("x", at=wrong)
            assert 0 == (await users.info()).members
        users = make_counter(f"at {off}", url=clockwork.server.url, **DAILY)
        assert await users.add(f"{off}", at=MONDAY)
        await users.clear(mapping=True)
    users = make_counter(url=clockwork.server.url, **DAILY)
    assert await users.add("x", at="20190603")
    clockwork.set(MONDAY + 7 * DAY)
    with pytest.raises(
        ConfigError, match=r"^at: expected .* '20190604' to '20190610', got '20190603'"
    ):
        await users.add_many(["y"], at="20190603")
    assert 0 == await users.count()


def _ends(server: redis.Redis, name: str) -> dict[str, datetime | None]:
    """When each key of a counter's slices ends, by the server's clock."""
    keys = server.keys(f"{{{name}}}:chunks:*")
    seconds, _ = server.time()
    now = datetime.fromtimestamp(seconds, timezone.utc)
    left = {key.partition("}:")[2]: server.ttl(key) for key in keys}
    return {key: now + timedelta(seconds=ttl) if ttl >= 0 else None for key, ttl in left.items()}


def test_a_slice_leaves_with_its_ttl(
    clockwork: Any, server: redis.Redis, daily: DistinctCounter, name: str
) -> None:
    """All that it consists of gets it when it is made, and keeps it whatever comes later."""
    members = [f"{i}" for i in range(5000)]
    daily.add_many(members)
    leaves = MONDAY + 7 * DAY
    monday = {"chunks:a:20190603": leaves}
    assert monday == _ends(server, name)
    clockwork.set(MONDAY + timedelta(hours=20))
    server.set(f"{{{name}}}:members", 2**28 - 1)
    daily.add_many(["more", *(f"much more {i}" for i in range(4200))])
    monday["chunks:a:20190603:1"] = leaves
    assert monday == _ends(server, name)
    clockwork.set(MONDAY + DAY)
    daily.add("x")
    assert {**monday, "chunks:a:20190604:1": leaves + DAY} == _ends(server, name)
    daily.add_many(members)
    tuesday = {"chunks:a:20190604": leaves + DAY, "chunks:a:20190604:1": leaves + DAY}
    assert {**monday, **tuesday} == _ends(server, name)
    clockwork.set(leaves - timedelta(seconds=1))
    assert 5000 + 4201 + 1 == daily.count()
    clockwork.set(leaves)
    assert 5001 == daily.count()
    clockwork.set(leaves + timedelta(seconds=1))  # Redis keeps a key through the last millisecond
    assert [5001, 0] == [daily.count(), daily.slice("20190603").count()]
    assert tuesday == _ends(server, name)


def test_midnight_between_two_calls_is_met_by_all(
    clockwork: Any, daily: DistinctCounter, name: str
) -> None:
    """Each client learns of it from the first reply, whatever it asks."""
    url = clockwork.server.url
    others = [DistinctCounter.from_url(url, "a", name, **DAILY) for _ in range(4)]
    daily.add_many(["x", "y"])
    assert [2] * 4 == [other.count() for other in others]
    for day in range(1, 9):
        clockwork.set(MONDAY + day * DAY - timedelta(seconds=1))
        assert not daily.add("x")
        clockwork.set(MONDAY + day * DAY)
        assert 0 == others[0].within(1).count()
        assert (2 if day < 7 else 1) == others[1].count_and(daily)
        assert 0 == others[2].info().slices[-1].count
        assert daily.add("x")
        assert not others[3].add("x")
        assert 1 == others[0].within(1).count_and(others[1].within(7))
