"""Exact filters used by threads, processes, forks and tasks at once: each item is new once."""

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

from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers.account import Account, names
from tests.helpers.forks import in_child, needs_fork
from tests.helpers.proxy import LossyProxy

SPAWN = multiprocessing.get_context("spawn")


def _pieces(items: list[str], seed: int) -> list[list[str]]:
    """In any order, some singly."""
    shuffled = random.Random(seed).sample(items, len(items))
    return [
        piece
        for start in range(0, len(items), 300)
        for piece in ([shuffled[start]], shuffled[start + 1 : start + 300])
    ]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("objects", [1, 4])
def test_of_threads_that_add_the_same_items_one_is_told_new(
    url: str, name: str, shards: int, objects: int
) -> None:
    """They share an object, or a few, while the layout grows from nothing."""
    account, items = Account(), names(6000)
    filters = [ExactFilter.from_url(url, name, shards=shards) for _ in range(objects)]
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for piece in _pieces(items, thread):
            account.offer(filters[thread % objects], piece)

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work, thread) for thread in range(8)]:
            job.result()
    account.check(filters[0])


def _add_together(seen: ExactFilter, start: threading.Barrier) -> bool:
    start.wait()
    return seen.add("a")


def test_the_first_calls_of_all_agree_on_a_beginning(url: str, name: str) -> None:
    """Each of 8 threads may propose it, on objects of their own and on a shared one."""
    for turn in range(30):
        shared = ExactFilter.from_url(url, f"{name}-{turn}")
        filters = [ExactFilter.from_url(url, f"{name}-{turn}") for _ in range(4)] + [shared] * 4
        start = threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            jobs = [threads.submit(_add_together, seen, start) for seen in filters]
            told = [job.result() for job in jobs]
        assert Counter({False: 7, True: 1}) == Counter(told)
        assert 1 == shared.info().items


def _add(url: str, name: str, items: list[str], seed: int) -> list[str]:
    with ExactFilter.from_url(url, name) as seen:
        return [
            item
            for piece in _pieces(items, seed)
            for item, new in zip(piece, seen.add_many(piece), strict=True)
            if new
        ]


def test_of_processes_that_add_the_same_items_one_is_told_new(url: str, name: str) -> None:
    items = names(6000)
    with SPAWN.Pool(3) as pool:
        told = pool.starmap(_add, [(url, name, items, seed) for seed in range(3)])
    assert Counter(items) == sum(map(Counter, told), Counter())
    with ExactFilter.from_url(url, name) as seen:
        assert len(items) == seen.info().items


@needs_fork
def test_forks_that_go_on_with_one_object_are_told_as_others(url: str, name: str) -> None:
    seen, items = ExactFilter.from_url(url, name), names(3000)
    assert all(seen.add_many(items[:1000]))

    def child() -> list[bool]:
        return seen.add_many(items[500:2000])

    assert [False] * 500 + [True] * 1000 == in_child(child)
    assert [False] * 1500 == in_child(child)
    assert [False] * 2000 + [True] * 1000 == seen.add_many(items)


async def test_of_tasks_that_add_the_same_items_one_is_told_new(url: str, name: str) -> None:
    account, items = Account(), names(6000)
    async with AsyncExactFilter.from_url(url, name) as seen:

        async def work(task: int) -> None:
            for piece in _pieces(items, task):
                await account.offer_async(seen, piece)

        await asyncio.gather(*map(work, range(6)))
    with ExactFilter.from_url(url, name) as right:
        account.check(right)


async def test_an_item_whose_task_was_cancelled_is_told_new_to_the_next(
    url: str, name: str
) -> None:
    """Wherever the call was when it was cancelled; of a batch too."""
    async with AsyncExactFilter.from_url(url, name) as seen:
        for turn in range(200):
            items = [f"{turn} {i}" for i in range(1 + turn % 5 * 100)]
            task = asyncio.create_task(seen.add_many(items))
            for _ in range(turn % 20):
                await asyncio.sleep(0)
            task.cancel()
            told = None
            with suppress(asyncio.CancelledError):
                told = await task
            again = await seen.add_many(items)
            assert [told is None] * len(items) == again
        assert not any(await seen.add_many(items))


@pytest.mark.parametrize("size", [1, 1000])
def test_what_an_error_left_untold_is_told_new_in_the_next_call(
    url: str, name: str, size: int
) -> None:
    """The reply is lost, and the object has no patience; meanwhile another one splits the buckets."""
    items = names(size)
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        ExactFilter.from_url(proxy.url, name, retry_for=0) as seen,
        ExactFilter.from_url(url, name) as other,
    ):
        seen.add("before")
        with pytest.raises(redis.ConnectionError):
            seen.add_many(items)
        told = other.add_many(
            items
        )  # a new filter has no room for so many at once: the last are not there yet
        assert all(other.add_many(f"another {i}" for i in range(5000)))
        assert [not new for new in told] == seen.add_many(items)
        assert told[0] is False
        assert not any(seen.add_many(items))
        assert size + 5001 == other.info().items


def test_what_is_cleared_has_no_first_answer(url: str, name: str) -> None:
    """An item that was added, untold, before a clear(), is added by the call that tells it new."""
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        ExactFilter.from_url(proxy.url, name, retry_for=0) as seen,
    ):
        seen.add("before")
        with pytest.raises(redis.ConnectionError):
            seen.add("a")
        assert "a" in seen
        seen.clear()
        assert [True, True, False] == [seen.add("a"), "a" in seen, seen.add("a")]


def test_adds_and_clears_at_once_end_in_a_right_filter(url: str, name: str) -> None:
    """What was told new after the last clear is there, once; and no call ends in an error."""
    filters = [ExactFilter.from_url(url, name) for _ in range(3)]
    done = threading.Event()

    def clear() -> None:
        # Without a pause, an add on a busy machine may meet 16 clears in a row, which is where it gives up.
        while not done.wait(0.002):
            filters[0].clear()

    def work(seen: ExactFilter, kind: str) -> None:
        for turn in range(150):
            seen.add_many(names(100, f"{kind} {turn % 3}"))
            seen.add(f"{kind} single")
            seen.contains_many(names(10, kind))

    with ThreadPoolExecutor(4) as threads:
        clearing = threads.submit(clear)
        jobs = [threads.submit(work, filters[i % 3], f"of {i % 2}") for i in range(3)]
        try:
            for job in jobs:
                job.result()
        finally:
            done.set()
        clearing.result()
    added = [f"of {i} {turn}" for i in range(2) for turn in range(3)]
    items = [*names(3000), *(item for kind in added for item in names(100, kind))]
    held = filters[1].contains_many(items)
    assert [not is_held for is_held in held] == filters[2].add_many(items)
    assert all(filters[0].contains_many(items))
    assert not any(filters[1].add_many(items))
