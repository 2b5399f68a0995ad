"""What a distinct counter has of its own: counts, combinations, a mapping, and slices, which leave by the server's clock (the rest:
contract/test_stores.py); and what fleets meet: counts while others add, answers that were lost, a replica that takes over.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import redis

from tbloom import ConfigError, ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter, MappingFull
from tests.helpers import servers
from tests.helpers.account import names, pieces
from tests.helpers.contents import check_mapping, keys_of
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Make

DAILY = {"granularity": "d", "slices": 7}


_INTEGERS = {"mapping": None}
#: A counter's parameters, a verb, an argument that is wrong for it, and the error.
_WRONG: list[tuple[dict[str, Any], str, Any, str]] = [
    *((DAILY, "within", n, "within: expected .* from 1 to 7") for n in (0, 8, -1, 1.5, True, "2")),
    (DAILY, "count", 8, "within: expected .* from 1 to 7"),
    ({}, "within", 1, "within: expected none: the counter has no slices"),
    ({}, "slice", "20190603", "at: expected none: the counter has no slices"),
    *((DAILY, "slice", at, "at: expected .*a slice's label") for at in ("", "2019060\u00b3", None)),
    (DAILY, "slice", datetime(2019, 6, 3), "at: expected .*a time zone"),  # noqa: DTZ001
    ({"granularity": "12h", "slices": 2}, "slice", date(2019, 6, 3), "at: expected a datetime"),
    (DAILY, "slice", datetime(9999, 12, 31, tzinfo=UTC), "at: expected .*the years"),
    *((_INTEGERS, "add", id, "member: expected a whole number") for id in (-1, 2**32, "7", True)),
    (_INTEGERS, "discard", 1.0, "member: expected a whole number"),
    (_INTEGERS, "add_many", [1, None], r"members\[1\]: expected a whole number"),
]


@pytest.mark.parametrize(("given", "verb", "argument", "error"), _WRONG)
async def test_a_wrong_argument_is_named(
    make_counter: Make, given: dict[str, Any], verb: str, argument: Any, error: str
) -> None:
    counter = make_counter(**given)
    with pytest.raises(ConfigError, match=f"^{error}"):
        await getattr(counter, verb)(argument)


async def test_a_full_mapping_still_counts_members_that_have_ids(
    make_counter: Make,
) -> None:
    """And answered so when they are asked for again, once."""
    users, other = make_counter(max_members=500), make_counter("b", max_members=500)
    known = [f"{i}" for i in range(500)]
    await users.add_many(known)
    many = [f"unknown {i}" for i in range(5000)]  # more than are sent at once
    with pytest.raises(MappingFull):
        await make_counter("c", max_members=500).add_many([*many, *known])
    assert 500 == await make_counter("c").count()
    for members in ([*known[:50], "unknown"], ["unknown", *known[:100]], [*known, "unknown"]):
        for _ in range(2):
            with pytest.raises(MappingFull):
                await other.add_many(members)
    assert 500 == await other.count() == (await other.info()).members
    for is_new in (True, False):
        assert [is_new] * 500 == await other.add_many(known)


def test_the_default_mapping_s_name_is_no_other_store_s(own: redis.Redis) -> None:
    """Its keys are in no other store's place, and no other store is taken for it."""
    own.flushall()
    default = DistinctCounter(own, "users")
    filters = [TimeBloom(own, "ids"), ExactFilter(own, "users")]
    counters = [DistinctCounter(own, "users", "_"), DistinctCounter(own, "all", None)]
    for seen in (*filters, *counters, default):
        assert [True, False] == seen.add_many([7, 7])
    default.clear(mapping=True)
    assert [] == [key for key in own.scan_iter("{ids}:_:*") if b":lane:" not in key]
    assert [False] * 4 == [seen.add(7) for seen in (*filters, *counters)]
    for wrong in ("{ids}", "{ids}:_", "{ids}:_:x", "ids}:_"):
        for make in (TimeBloom, ExactFilter, DistinctCounter):
            with pytest.raises(ConfigError, match=r"^name: expected "):
                make(own, wrong)


def test_counts_during_adds_lie_between_before_and_after(url: str, name: str) -> None:
    """Of one counter, and of what two have together and in common; while chunks become bitmaps."""
    one, other = (DistinctCounter.from_url(url, counter, name) for counter in ("one", "other"))
    other.add_many(names(5000))
    new, done = [0], threading.Event()

    def add() -> None:
        with DistinctCounter.from_url(url, "one", name) as counter:
            try:
                for piece in pieces(names(12_000), 1):
                    new.append(new[-1] + sum(counter.add_many(piece)))
            finally:
                done.set()

    counted = 0
    with ThreadPoolExecutor(1) as thread:
        adding = thread.submit(add)
        while not done.is_set() or not counted:
            before = new[-1]
            n, both = one.count(), one.count_and(other)
            either, at_last = one.count_or(other), one.count()
            # (One call more may have been made by then, whose answer has not come yet.)
            assert before <= n <= at_last <= new[-1] + 300
            assert max(0, before - 7000) <= both <= min(5000, at_last)
            assert max(5000, n) <= either <= 5000 + at_last
            counted += 1
        adding.result()
    assert (12_000, 5000, 12_000) == (one.count(), one.count_and(other), one.count_or(other))
    assert 7000 == one.count_xor(other)


def test_a_replica_that_takes_over_is_of_one_moment(
    server: LocalRedis, binary: str, name: str
) -> None:
    """It has missed what came last. The clients, which know of that, go on with it: no id is given twice."""
    one, two = names(5000, "one"), names(5000, "two")
    with (
        servers.replica(binary, server) as replica,
        redis.Redis(port=server.port) as client,
        redis.Redis(port=server.port) as direct,
    ):
        counter, other = DistinctCounter(client, "one", name), DistinctCounter(client, "two", name)
        counter.add_many(one[:3000])
        other.add_many([*two[:100], *one[:200]])
        direct.wait(1, 0)
        replica.replicaof("NO", "ONE")
        assert all(counter.add_many([*one[3000:], *two[:4000]]))
        assert all(other.add_many(two[100:]))
        pool, port = client.connection_pool, replica.connection_pool.connection_kwargs["port"]
        pool.disconnect()
        pool.reset()  # the next connection is made anew
        pool.connection_kwargs["port"] = port
        url = f"redis://127.0.0.1:{port}/0"
        check_mapping(url, name, {"one": one[:3000], "two": [*two[:100], *one[:200]]})
        assert [True] * 4900 == other.add_many(two[100:])
        assert [True] * 2000 == counter.add_many(one[3000:])
        assert not any(counter.add_many(one))
        check_mapping(url, name, {"one": one, "two": [*two, *one[:200]]})


MONDAY = datetime(2019, 6, 3, tzinfo=UTC)  # when the server's clock begins
DAY = timedelta(days=1)


async def test_a_log_of_past_days_is_counted_by_day(
    clockwork: Any, make_counter: Make, name: str
) -> None:
    """By an instant, a day in the counter's zone, or a label. All keys of a slice leave as if it had been counted in time."""
    clockwork.set(MONDAY + 6 * DAY + timedelta(hours=12))
    users = make_counter(url=clockwork.server.url, **DAILY, tz="America/New_York")
    assert [True, True] == await users.add_many(["x", "y"], at=date(2019, 6, 4))
    assert [False, True] == [
        await users.add("x", at="20190604"),
        await users.add("x", at="20190605"),
    ]
    assert await users.add("late", at=datetime(2019, 6, 5, 3, 59, tzinfo=UTC))
    assert not await users.add("late", at=date(2019, 6, 4))
    assert [True, False] == [
        await users.add("x"),
        await users.add("x", at=MONDAY + 6 * DAY + timedelta(hours=13)),
    ]
    assert [3, 1, 0, 0, 0, 1] == [one.count for one in (await users.info()).slices[1:]]
    assert 3 == await users.count()
    with redis.Redis.from_url(clockwork.server.url) as client:
        client.set(f"{{{name}}}:members", 2**28 - 1)  # the ids of two keys
        await users.add_many(["more", *(f"much more {i}" for i in range(4200))])
        now = datetime.fromtimestamp(client.time()[0], UTC)
        ends = {key.decode(): now + timedelta(seconds=client.ttl(key)) for key in keys_of(client)}
    assert {
        f"{{{name}}}:chunks:a:201906{day}": MONDAY + (int(day[:2]) + 4) * DAY + timedelta(hours=4)
        for day in ("04", "05", "09", "09:1")
    } == {key: end for key, end in ends.items() if ":chunks:" in key}


async def test_the_servers_clock_decides_what_is_outside_the_window(
    clockwork: Any, make_counter: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client's clock says; and if the slice leaves before the call arrives."""
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)  # in 2001
    clockwork.set(MONDAY + 6 * DAY)
    users = make_counter(url=clockwork.server.url, **DAILY)
    outside = r"^at: expected an instant in a slice of the window, '2019060{}' to '201906{}', got"
    for wrong in ("20190602", MONDAY - DAY, date(2019, 6, 10)):
        with pytest.raises(ConfigError, match=outside.format(3, "09")):
            await users.add("x", at=wrong)
    assert await users.add("x", at="20190603")
    clockwork.set(MONDAY + 7 * DAY)
    with pytest.raises(ConfigError, match=outside.format(4, "10")):
        await users.add_many(["y"], at="20190603")
    assert 0 == await users.count()


def test_midnight_between_two_calls_is_met_by_all(clockwork: Any, name: str) -> None:
    """Each client learns of it from the first reply, whatever it asks."""
    url = clockwork.server.url
    daily, *others = [DistinctCounter.from_url(url, "a", name, **DAILY) for _ in range(5)]
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


@pytest.mark.parametrize("mapping", [False, True], ids=["the counter", "the mapping"])
def test_clear_leaves_nothing_of_a_wrong_clock_s_slices(
    clockwork: Any, name: str, *, mapping: bool
) -> None:
    """The server's clock was ahead, and has been set back before this client came."""
    clockwork.set(MONDAY + 3 * DAY)
    with DistinctCounter.from_url(clockwork.server.url, "a", name, **DAILY) as other:
        other.add_many(["x", "y"])
    clockwork.set(MONDAY)
    with DistinctCounter.from_url(clockwork.server.url, "a", name, **DAILY) as counter:
        counter.add("x")
        assert {"03", "06"} == {key[-2:] for key in clockwork.client.keys("*:chunks:*")}
        counter.clear(mapping=mapping)
        assert [] == clockwork.client.keys("*:chunks:*")
