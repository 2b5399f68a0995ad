"""What fleets meet, with distinct counters: many threads at once, bad networks, servers that die. (What all stores do alike:
``tests/contract``.)"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import redis

from tbloom.distinct import DistinctCounter
from tests.helpers import servers
from tests.helpers.account import FULL, Account, names, pieces
from tests.helpers.flows import flow_of, lose
from tests.helpers.ids import check
from tests.helpers.localredis import LocalRedis

NUMBER = 20_000 if FULL else 6000


def test_counters_that_share_a_mapping_are_told_each_for_itself(url: str, name: str) -> None:
    """4 counters with overlapping members, two threads each: each id is given once."""
    members = {f"c{i}": names(NUMBER)[i * 900 : i * 900 + NUMBER // 2] for i in range(4)}
    accounts = {counter: Account() for counter in members}

    def work(counter: str, seed: int) -> None:
        with DistinctCounter.from_url(url, counter, name) as own:
            for piece in pieces(members[counter], seed):
                accounts[counter].offer(own, piece)

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work, counter, i) for i in range(2) for counter in members]:
            job.result()
    for account in accounts.values():
        account.check_answers()
    check(url, name, members)


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


def test_an_add_to_a_past_day_without_an_answer_is_answered_when_it_is_repeated(
    client: redis.Redis, name: str
) -> None:
    """For that day: today's answers are others."""
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    one, other = (DistinctCounter(client, "one", name, granularity="d", slices=3) for _ in range(2))
    one.add("first")
    lose(client, flow_of(one, "add_many", ["a", "b"], at=yesterday))
    assert other.add("a")
    assert [False, True] == one.add_many(["a", "b"])
    for is_new in (True, False):
        assert [is_new] * 2 == one.add_many(["a", "b"], at=yesterday)
    assert [0, 2, 3] == [slice.count for slice in one.info().slices]


def test_a_replica_that_takes_over_has_mapping_and_counters_of_one_moment(
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
        check(url, name, {"one": one[:3000], "two": [*two[:100], *one[:200]]})
        assert [True] * 4900 == other.add_many(two[100:])
        assert [True] * 2000 == counter.add_many(one[3000:])
        assert not any(counter.add_many(one))
        check(url, name, {"one": one, "two": [*two, *one[:200]]})
