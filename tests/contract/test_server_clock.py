"""The server's clock is set forward and back."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers.account import FULL, PARAMETERS, Account, names, new_seed

THREE_DAYS = PARAMETERS | {"slices": 3}
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
        """Every key has one; a slice's ends when the slice leaves the window."""
        for key in self._client.scan_iter():
            ttl = self._client.pttl(key)
            assert ttl != -1, key
            label = key.split(":")[1]
            if label.isdigit() and ttl > 0:
                begins = datetime.strptime(label, "%Y%m%d")  # noqa: DTZ007
                assert self._now + timedelta(milliseconds=ttl) == begins + RETENTION


@pytest.fixture
def jumps(clockwork: Any) -> Iterator[Jumps]:
    jumps = Jumps(clockwork)
    yield jumps
    jumps.check_ttls()


@pytest.fixture
def seen(jumps: Jumps, name: str) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(jumps.url, name, **THREE_DAYS) as seen:
        yield seen


def _offer_twice(account: Account, seen: TimeBloom, items: list[str]) -> None:
    account.offer(seen, items)
    for item in items[:10]:
        account.offer(seen, [item])
    account.offer(seen, items)


def test_forward_over_the_whole_window_each_item_is_new_once_more(
    jumps: Jumps, seen: TimeBloom
) -> None:
    """And when the clock is right again, once more at most."""
    items, account = names(300), Account()
    _offer_twice(account, seen, items)
    jumps.to("20 12:00")
    _offer_twice(account, seen, items)
    assert {2} == set(account.new.values())
    for time in ("3 12:00", "4 12:00", "20 12:00"):
        jumps.to(time)
        _offer_twice(account, seen, items)
    account.check_answers(again=2 * len(items))
    assert max(account.new.values()) <= 3


def test_wherever_the_clock_jumps_what_the_window_holds_is_seen_and_nothing_else(
    jumps: Jumps, seen: TimeBloom
) -> None:
    """Compared with plain sets, a set for a slice, over three days that all stay in the window."""
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
    print(f"{forward} times forward and {back} times back over a slice")
    jumps.to("5 23:59")  # the window is the three days
    assert seen.info().items == sum(map(len, held.values()))


def test_a_slice_that_grows_while_the_clock_is_back_leaves_later_ones_as_they_are(
    jumps: Jumps, name: str
) -> None:
    later = names(50, "of the later slice")
    with TimeBloom.from_url(jumps.url, name, **THREE_DAYS | {"capacity": 100}) as seen:
        jumps.to("4 00:10")
        assert all(seen.add_many(later))
        jumps.to("3 23:50")
        assert all(seen.add_many(names(300)))
        jumps.to("4 00:10")
        assert all(seen.contains_many(later))
        assert not any(seen.add_many(later + names(300)))


@pytest.mark.parametrize("how", ["clear", "clear of 3 shards", "swap"])
def test_what_is_forgotten_while_the_clock_is_back_includes_later_slices(
    jumps: Jumps, name: str, how: str
) -> None:
    """Also their further parts. When the clock is right again, nothing of them is seen."""
    parameters = THREE_DAYS | {"capacity": 1000, "shards": 3 if "3" in how else 1}
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
