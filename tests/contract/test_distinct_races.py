"""Distinct counters used by threads, processes, forks and tasks at once: each member is told True once per counter."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import redis

from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tests.helpers.account import FULL, Account, names
from tests.helpers.forks import in_child, needs_fork
from tests.helpers.ids import check, ids_of
from tests.helpers.proxy import LossyProxy

SPAWN = multiprocessing.get_context("spawn")
NUMBER = 20_000 if FULL else 6000


def _pieces(members: list[str], seed: int) -> list[list[str]]:
    """In any order, some singly."""
    shuffled = random.Random(seed).sample(members, len(members))
    return [
        piece
        for start in range(0, len(members), 300)
        for piece in ([shuffled[start]], shuffled[start + 1 : start + 300])
    ]


@pytest.mark.parametrize("objects", [1, 4])
def test_of_threads_that_add_the_same_members_one_is_told_true(
    url: str, name: str, objects: int
) -> None:
    """They share an object, or a few, while buckets are split and chunks become bitmaps."""
    account, members = Account(), names(NUMBER)
    counters = [DistinctCounter.from_url(url, "one", name) for _ in range(objects)]
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for piece in _pieces(members, thread):
            account.offer(counters[thread % objects], piece)

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work, thread) for thread in range(8)]:
            job.result()
    account.check_told()
    check(url, name, {"one": members})
    assert NUMBER == counters[0].count()


def test_counters_that_share_a_mapping_are_told_each_for_itself(url: str, name: str) -> None:
    """4 counters with overlapping members, two threads each: an id is given once, whoever comes first."""
    members = {f"c{i}": names(NUMBER)[i * 900 : i * 900 + NUMBER // 2] for i in range(4)}
    accounts = {counter: Account() for counter in members}

    def work(counter: str, seed: int) -> None:
        with DistinctCounter.from_url(url, counter, name) as own:
            for piece in _pieces(members[counter], seed):
                accounts[counter].offer(own, piece)

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work, counter, i) for i in range(2) for counter in members]:
            job.result()
    for account in accounts.values():
        account.check_told()
    check(url, name, members)
    counters = [DistinctCounter.from_url(url, counter, name) for counter in members]
    sets = [{*some} for some in members.values()]
    assert len(set.union(*sets)) == counters[0].count_or(*counters[1:])
    assert len(set.intersection(*sets)) == counters[0].count_and(*counters[1:])
    assert len(sets[0] ^ sets[1]) == counters[0].count_xor(counters[1])


def test_the_first_calls_of_all_agree_on_a_beginning(url: str, name: str) -> None:
    """Each of 8 threads may propose a generation, on objects of their own and on a shared one."""
    for turn in range(30):
        mapping = f"{name}-{turn}"
        shared = DistinctCounter.from_url(url, "one", mapping)
        own = [DistinctCounter.from_url(url, "one", mapping) for _ in range(4)]
        start = threading.Barrier(8)

        def add(counter: DistinctCounter, start: threading.Barrier) -> bool:
            start.wait()
            return counter.add("a")

        with ThreadPoolExecutor(8) as threads:
            jobs = [threads.submit(add, counter, start) for counter in [*own, *[shared] * 4]]
            told = [job.result() for job in jobs]
        assert Counter({False: 7, True: 1}) == Counter(told)
        check(url, mapping, {"one": ["a"]})


def test_a_chunk_becomes_a_bitmap_once_whoever_comes_first(url: str, name: str) -> None:
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
    account.check_told()
    check(url, name, {"one": members})


def _add(url: str, name: str, members: list[str], seed: int) -> list[str]:
    with DistinctCounter.from_url(url, "one", name) as counter:
        return [
            member
            for piece in _pieces(members, seed)
            for member, new in zip(piece, counter.add_many(piece), strict=True)
            if new
        ]


def test_of_processes_that_add_the_same_members_one_is_told_true(url: str, name: str) -> None:
    members = names(NUMBER)
    with SPAWN.Pool(3) as pool:
        told = pool.starmap(_add, [(url, name, members, seed) for seed in range(3)])
    assert Counter(members) == sum(map(Counter, told), Counter())
    check(url, name, {"one": members})


@needs_fork
def test_forks_that_go_on_with_one_object_are_told_as_others(url: str, name: str) -> None:
    counter, members = DistinctCounter.from_url(url, "one", name), names(6000)
    assert all(counter.add_many(members[:1000]))

    def child() -> list[bool]:
        return counter.add_many(members[500:5000])

    assert [False] * 500 + [True] * 4000 == in_child(child)
    assert [False] * 4500 == in_child(child)
    assert [False] * 5000 + [True] * 1000 == counter.add_many(members)
    check(url, name, {"one": members})


async def test_of_tasks_that_add_the_same_members_one_is_told_true(url: str, name: str) -> None:
    account, members = Account(), names(NUMBER)
    async with AsyncDistinctCounter.from_url(url, "one", name) as counter:

        async def work(task: int) -> None:
            for piece in _pieces(members, task):
                await account.offer_async(counter, piece)

        await asyncio.gather(*map(work, range(6)))
    account.check_told()
    check(url, name, {"one": members})


async def test_a_member_whose_task_was_cancelled_is_told_true_to_the_next(
    url: str, name: str
) -> None:
    """Wherever the call was when it was cancelled; of a batch too."""
    offered = []
    async with AsyncDistinctCounter.from_url(url, "one", name) as counter:
        for turn in range(100):
            members = [f"{turn} {i}" for i in range(1 + turn % 5 * 80)]
            offered += members
            task = asyncio.create_task(counter.add_many(members))
            for _ in range(turn % 20):
                await asyncio.sleep(0)
            task.cancel()
            told = None
            with suppress(asyncio.CancelledError):
                told = await task
            again = await counter.add_many(members)
            assert [told is None] * len(members) == again
        assert not any(await counter.add_many(members))
    check(url, name, {"one": offered})


@pytest.mark.parametrize("size", [1, 1000])
def test_what_an_error_left_untold_is_told_true_in_the_next_call(
    url: str, name: str, size: int
) -> None:
    """The reply is lost, and the object has no patience; meanwhile another one splits buckets and makes a bitmap."""
    members, others = names(size), names(5000, "another")
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        DistinctCounter.from_url(proxy.url, "one", name, retry_for=0) as counter,
        DistinctCounter.from_url(url, "one", name) as other,
    ):
        counter.add("before")
        with pytest.raises(redis.ConnectionError):
            counter.add_many(members)
        told = other.add_many(members)
        assert told[0] is False
        assert all(other.add_many(others))
        assert [not new for new in told] == counter.add_many(members)
        assert not any(counter.add_many(members))
        assert size + 5001 == other.count()
    check(url, name, {"one": [*members, *others, "before"]})


def test_what_is_cleared_has_no_first_answer(url: str, name: str) -> None:
    """A member that was added, untold, before a clear(), is added by the call that tells it."""
    for mapping in (False, True):
        with (
            LossyProxy(url, lambda number: number == 2) as proxy,
            DistinctCounter.from_url(proxy.url, "one", f"{name}-{mapping}", retry_for=0) as counter,
        ):
            counter.add("before")
            with pytest.raises(redis.ConnectionError):
                counter.add("a")
            assert 2 == counter.count()
            counter.clear(mapping=mapping)
            assert [True, 1, False] == [counter.add("a"), counter.count(), counter.add("a")]


def test_counts_during_adds_lie_between_before_and_after(url: str, name: str) -> None:
    """Of one counter, and of what two have together and in common; while chunks become bitmaps."""
    one, other = (DistinctCounter.from_url(url, counter, name) for counter in ("one", "other"))
    other.add_many(names(5000))
    told, done = [0], threading.Event()

    def add() -> None:
        with DistinctCounter.from_url(url, "one", name) as counter:
            try:
                for piece in _pieces(names(12_000), 1):
                    told.append(told[-1] + sum(counter.add_many(piece)))
            finally:
                done.set()

    counted = 0
    with ThreadPoolExecutor(1) as thread:
        adding = thread.submit(add)
        while not done.is_set() or not counted:
            before = told[-1]
            n, both = one.count(), one.count_and(other)
            either, at_last = one.count_or(other), one.count()
            # (One call more may have been made by then, whose answer has not come yet.)
            assert before <= n <= at_last <= told[-1] + 300
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
    """No call ends in an error, or never; and what is counted then is what is told so."""
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


def test_a_mapping_is_cleared_while_others_never_stop_adding(url: str, name: str) -> None:
    """It ends, leaves what was added after, and nothing of what was before."""
    done, added = threading.Event(), Counter[int]()

    def work(thread: int) -> None:
        with DistinctCounter.from_url(url, f"c{thread}", name) as counter:
            while not done.is_set():
                counter.add(f"{thread} {added[thread]}")
                added[thread] += 1

    with DistinctCounter.from_url(url, "one", name) as one, ThreadPoolExecutor(4) as threads:
        one.add_many(names(1000))
        jobs = [threads.submit(work, thread) for thread in range(4)]
        try:
            for _ in range(5):
                one.clear(mapping=True)
                assert 0 == one.count()
        finally:
            done.set()
        for job in jobs:
            job.result()
        with redis.Redis.from_url(url) as client:
            ids = ids_of(client, name)
        assert len(ids) == one.info().members
        assert [*range(len(ids))] == sorted(ids.values())
