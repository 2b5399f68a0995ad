"""Distinct counters that share a mapping, used by many threads at once (what all stores do alike: contract/test_races.py)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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
