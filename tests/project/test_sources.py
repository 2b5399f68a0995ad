"""The experiments of the sources, on a Redis whose hours and days take seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import servers
from tests.helpers.making import missing


@pytest.fixture
def fast() -> Iterator[Callable[[int], redis.Redis]]:
    """Starts a Redis at 2019-06-03 00:00:00 whose clock runs ``rate`` times too fast."""
    if not servers.FAKETIME:
        missing("Debian's package faketime")
    opened = []

    def start(rate: int) -> redis.Redis:
        server = servers.fast_clock("2019-06-03 00:00:00", rate)
        opened.append(server)
        server.__enter__()
        return redis.Redis.from_url(server.url, decode_responses=True)

    yield start
    for server in opened:
        server.__exit__(None, None, None)


def _now(client: redis.Redis) -> datetime:
    seconds, micros = client.time()
    return datetime.fromtimestamp(seconds + micros / 1e6, timezone.utc)


def _wait_until(client: redis.Redis, when: datetime) -> None:
    while _now(client) < when:
        time.sleep(0.002)


def _urls(first: int, last: int) -> list[str]:
    return [f"https://site.example/{i}" for i in range(first, last)]


@pytest.mark.check
def test_experiment_a_hourly_slices(fast: Any) -> None:
    """2 hourly slices, 100 URLs an hour, 4 hours; an hour takes two seconds."""
    client = fast(1800)
    own = [_urls(100 * hour, 100 * hour + 100) for hour in range(4)]
    may_fetch: list[list[bool]] = []  # for each hour: whether it may fetch the earlier hours' pages
    with TimeBloom(client, "hours", granularity="h", slices=2, capacity=1000) as seen:
        first = _now(client).hour + 1
        for hour in range(4):
            _wait_until(client, datetime(2019, 6, 3, first + hour, 6, tzinfo=timezone.utc))
            assert [True] * 100 == seen.add_many(own[hour])
            known = [set(seen.contains_many(urls)) for urls in own[:hour]]
            assert _now(client).hour == first + hour, "the machine was too slow for this clock"
            assert all(len(answers) == 1 for answers in known)
            may_fetch.append([answers == {False} for answers in known])
    assert [
        [],
        [False],  # hour 2 shares nothing with hour 1
        [True, False],  # hour 3 may fetch hour 1's again, but not hour 2's
        [True, True, False],  # hour 4 may fetch those of hours 1 and 2, but not hour 3's
    ] == may_fetch


@pytest.mark.check
def test_experiment_b_daily_slices(fast: Any) -> None:
    """3 daily slices from 3 June, k = 6; a day takes two seconds.

    Nothing is fetched twice in the window, everything can be fetched again after it, and fewer
    than 1 in 10,000 others are called seen.
    """
    client = fast(43_200)
    days = [_urls(1000 * day, 1000 * day + 1000) for day in range(3)]
    with TimeBloom(client, "days", slices=3, capacity=2000, hashes=6) as seen:
        first = _now(client).day + 1
        for day in range(3):
            _wait_until(client, datetime(2019, 6, first + day, 1, tzinfo=timezone.utc))
            assert [True] * 1000 == seen.add_many(days[day])
            assert not any(seen.add_many(url for earlier in days[: day + 1] for url in earlier))
        # The slice of each day expires when the day three later begins.
        now = _now(client)
        for day, key in enumerate(seen.keys(at=now)):
            assert key == f"{{days}}:2019060{first + day}"
            gone = now.timestamp() + client.pttl(key) / 1000
            midnight = datetime(2019, 6, first + day + 3, tzinfo=timezone.utc).timestamp()
            assert gone == pytest.approx(midnight, abs=3600)
        others = seen.contains_many(f"https://other.example/{i}" for i in range(50_000))
        assert sum(others) < 5
        _wait_until(client, datetime(2019, 6, first + 5, 1, tzinfo=timezone.utc))
        assert [] == [key for key in client.keys("*") if ":lane:" not in key]
        assert [True] * 3000 == seen.add_many(url for day in days for url in day)
