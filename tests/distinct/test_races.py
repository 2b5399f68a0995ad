"""Distinct counters that share a mapping, used by many threads at once (what all stores do alike: contract/test_races.py)."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tests.helpers.account import FULL, Account, names, pieces
from tests.helpers.ids import check

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
    counters = [DistinctCounter.from_url(url, counter, name) for counter in members]
    sets = [{*some} for some in members.values()]
    assert len(set.union(*sets)) == counters[0].count_or(*counters[1:])
    assert len(set.intersection(*sets)) == counters[0].count_and(*counters[1:])
    assert len(sets[0] ^ sets[1]) == counters[0].count_xor(counters[1])


def test_a_chunk_becomes_a_bitmap_once(url: str, name: str) -> None:
    """8 objects that know nothing of it add the members around the 4,096th."""
    with DistinctCounter.from_url(url, "one", name) as one:
        one.add_many(names(4000))
    account, members = Account(), names(4200)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        with DistinctCounter.from_url(url, "one", name) as counter:
            start.wait()
            for member in random.Random(seed).sample(members[4000:], 200):
                account.offer(counter, [member])

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work, seed) for seed in range(8)]:
            job.result()
    account.check_answers()
    check(url, name, {"one": members})


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


@pytest.mark.parametrize("mapping", [False, True])
def test_adds_and_clears_at_once_end_in_a_right_counter(
    url: str, name: str, *, mapping: bool
) -> None:
    """No call ends in an error, or never; and what is counted then is what was answered so."""
    counters = [DistinctCounter.from_url(url, f"c{i % 2}", name) for i in range(3)]
    done, clears = threading.Event(), [0]

    def clear() -> None:
        while not done.is_set() or not clears[0]:
            counters[2].clear(mapping=mapping)
            clears[0] += 1

    def work(counter: DistinctCounter, kind: str) -> None:
        for turn in range(60):
            counter.add_many(names(200, f"{kind} {turn % 3}"))
            counter.add(f"{kind} single")
            counter.count_or(*counters)

    with ThreadPoolExecutor(4) as threads:
        clearing = threads.submit(clear)
        jobs = [threads.submit(work, counters[i], f"of {i % 2}") for i in range(3)]
        try:
            for job in jobs:
                job.result()
        finally:
            done.set()
        clearing.result()
    members = [f"of {i} single" for i in range(2)]
    members += [member for i in range(2) for t in range(3) for member in names(200, f"of {i} {t}")]
    for counter in counters[:2]:
        before = counter.count()
        assert len(members) - before == sum(counter.add_many(members))
        assert not any(counter.add_many(members))
    check(url, name, {"c0": members, "c1": members})
    with redis.Redis.from_url(url) as client:
        generations = {key.split(b":")[2] for key in client.scan_iter(f"{{{name}}}:ids:*")}
        assert 1 == len(generations)
