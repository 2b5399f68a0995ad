"""The server's clock is set forward and back."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tests.helpers.account import FULL, PARAMETERS, names, new_seed

THREE_DAYS = PARAMETERS | {"slices": 3, "capacity": 300, "session_ttl": 60}
RETENTION = timedelta(days=3)


class Jumps:
    """A server whose clock jumps, beginning on 3 June 2019."""

    def __init__(self, clockwork: Any) -> None:
        self._clockwork = clockwork
        self.url = clockwork.server.url
        self._client = redis.Redis.from_url(self.url, decode_responses=True)
        self._now = datetime(2019, 6, 3)  # noqa: DTZ001 - UTC, like the server

    def to(self, when: str) -> None:
        """``"5 12:00"``: on 5 June 2019, at noon."""
        self.check_ttls()
        self._now = datetime.strptime(f"2019-06-{when}", "%Y-%m-%d %H:%M")  # noqa: DTZ007
        self._clockwork.set(f"{self._now}")
        self.check_ttls()

    def check_ttls(self) -> None:
        """Every key has one: a slice's ends when the slice leaves the window, others but lanes' not before all slices'."""
        ttls = {key: self._client.pttl(key) for key in self._client.scan_iter()}
        for key, ttl in ttls.items():
            assert ttl != -1, key
            label = key.split(":")[1]
            if label.isdigit() and ttl > 0:
                begins = datetime.strptime(label, "%Y%m%d")  # noqa: DTZ007
                assert self._now + timedelta(milliseconds=ttl) == begins + RETENTION
        last = max(ttls.values(), default=0) - 60_000  # shards leave one after another
        others = (":config", ":layout", ":parts", ":claims", ":sessions")
        assert [] == [key for key, ttl in ttls.items() if key.endswith(others) and ttl < last]


@pytest.fixture
def jumps(clockwork: Any) -> Iterator[Jumps]:
    jumps = Jumps(clockwork)
    yield jumps
    jumps.check_ttls()


@pytest.fixture
def seen(jumps: Jumps, name: str) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(jumps.url, name, **THREE_DAYS) as seen:
        seen._keep_session = lambda: None  # type: ignore[method-assign] # no heartbeat between two steps of the clock
        yield seen


def test_wherever_the_clock_jumps_what_the_window_holds_is_seen_and_nothing_else(
    jumps: Jumps, seen: TimeBloom
) -> None:
    """Compared with plain sets, a set for a slice, over three days that all stay in the window; slices grow."""
    rng, held = random.Random(new_seed()), defaultdict[int, set[str]](set)
    pool, forward, back = names(3000), 0, 0
    day = 3
    for _ in range(400 if FULL else 40):
        last, day = day, rng.choice((3, 4, 5))
        forward, back = forward + (day > last), back + (day < last)
        jumps.to(f"{day} {rng.randrange(24):02}:{rng.randrange(60):02}")
        remembered = set[str]().union(*(held[earlier] for earlier in range(3, day + 1)))
        items = rng.sample(pool, 100)
        assert [item in remembered for item in items] == seen.contains_many(items)
        assert [item not in remembered for item in items] == seen.add_many(items)
        held[day].update(set(items) - remembered)
        assert Claim.NEW is seen.claim(f"claimed {rng.random()}")
    print(f"{forward} times forward and {back} times back over a slice")
    jumps.to("5 23:59")  # the window is the three days
    assert seen.info().items == sum(map(len, held.values()))


@pytest.mark.parametrize("how", ["clear", "clear of 3 shards", "swap"])
def test_what_is_forgotten_while_the_clock_is_back_includes_later_slices(
    jumps: Jumps, name: str, how: str
) -> None:
    """Also their further parts. When the clock is right again, nothing of them is seen."""
    parameters = THREE_DAYS | {"shards": 3 if "3" in how else 1}
    items = names(3000, "of the later slice")
    with TimeBloom.from_url(jumps.url, name, **parameters) as seen:
        jumps.to("5 00:10")
        assert all(seen.add_many(items))
        jumps.to("3 23:50")
        if how == "swap":
            with TimeBloom.from_url(jumps.url, f"{{{name}}}:new", **parameters) as other:
                other.add("kept")
            seen.swap(f"{{{name}}}:new")
        else:
            seen.clear()
        jumps.to("5 00:10")
        assert [how == "swap"] == seen.contains_many(["kept"])
        assert not any(seen.contains_many(items))
        assert all(seen.add_many(items))
