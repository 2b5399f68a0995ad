"""Stores used by threads, processes, forks and tasks at once: each item is new once."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.pool import Pool
from typing import Any

import pytest
import redis

from tbloom.engine.together import Waiting, hand_out
from tests.helpers.account import FULL, NO_ANSWER, Account, Hasty, names, pieces
from tests.helpers.flows import flow_of, replies_to, run
from tests.helpers.forks import in_child, needs_fork
from tests.helpers.proxy import LossyProxy, every
from tests.helpers.stores import BLOOM, EXACT, STORES, Store

SPAWN = multiprocessing.get_context("spawn")
NUMBER = 20_000 if FULL else 4500  # 4,097 make a distinct counter's bitmap


def _add(kind: str, url: str, name: str, items: list[str], seed: int) -> list[str]:
    [store] = [store for store in STORES if store.kind == kind]
    with store.open(url, name) as seen:
        return [
            item
            for piece in pieces(items, seed)
            for item, new in zip(piece, seen.add_many(piece), strict=True)
            if new
        ]


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    with SPAWN.Pool(3) as processes:
        yield processes


def test_of_processes_that_add_the_same_items_one_gets_new(
    store: Store, processes: Pool, url: str, name: str
) -> None:
    items, seeds = names(NUMBER), range(3)
    answers = processes.starmap(_add, [(store.kind, url, name, items, seed) for seed in seeds])
    assert Counter(items) == sum(map(Counter, answers), Counter())
    with store.open(url, name) as seen:
        assert len(items) == store.held(seen)


@needs_fork
def test_forks_that_go_on_with_one_object_are_clients_of_their_own(
    store: Store, url: str, name: str
) -> None:
    seen, items = store.open(url, name), names(6000)
    assert all(seen.add_many(items[:1000]))

    def child() -> list[bool]:
        answers: list[bool] = seen.add_many(items[500:5000])
        return answers

    assert [False] * 500 + [True] * 4000 == in_child(child)
    assert [False] * 4500 == in_child(child)
    assert [False] * 5000 + [True] * 1000 == seen.add_many(items)
    assert 6000 == store.held(seen)


async def test_an_item_whose_task_was_cancelled_is_new_to_the_next_call(
    store: Store, url: str, name: str
) -> None:
    """Wherever the call was when it was cancelled; of a batch too."""
    offered: list[str] = []
    async with store.open(url, name, driver="async") as seen:
        for turn in range(100):
            items = [f"{turn} {i}" for i in range(1 + turn % 5 * 100)]
            offered += items
            task = asyncio.create_task(seen.add_many(items))
            for _ in range(turn % 20):
                await asyncio.sleep(0)
            task.cancel()
            answers = None
            with suppress(asyncio.CancelledError):
                answers = await task
            assert [answers is None] * len(items) == await seen.add_many(items)
        assert not any(await seen.add_many(offered))
    with store.open(url, name) as right:
        assert len(offered) == store.held(right)


def test_of_two_calls_that_end_without_an_answer_at_once_the_next_gets_new(
    store: Store, client: redis.Redis, url: str, name: str
) -> None:
    """Whichever the server executes first, and whichever ends first; or it executes one only."""
    with store.open(url, name) as seen:
        seen.add("before")
        for turn in range(8):
            item = f"item {turn}"
            flows = [store.flow(seen, [item]) for _ in range(2)]
            calls = [next(flow) for flow in flows]
            one, other = (0, 1) if turn & 1 else (1, 0)
            replies_to(client, calls[one])
            if turn & 2:
                replies_to(client, calls[other])
            for flow in flows if turn & 4 else flows[::-1]:
                flow.close()
            assert [True, False] == [seen.add(item), seen.add(item)]


def test_threads_whose_calls_fail_at_once_lose_nothing(store: Store, url: str, name: str) -> None:
    """They add the same items through one object, which does not retry."""
    account, items = Account(), names(20)
    with (
        LossyProxy(url, every(3)) as proxy,
        store.open(proxy.url, name, retry_for=0) as seen,
        ThreadPoolExecutor(6) as threads,
    ):

        def work(_: int) -> None:
            for item in items:
                account.offer(seen, [item], repeat_on=NO_ANSWER)

        for job in [threads.submit(work, thread) for thread in range(6)]:
            job.result()
    store.check(account, url, name)


async def test_tasks_that_give_up_while_the_server_stalls_lose_nothing(
    store: Store, own: redis.Redis, own_server: Any, name: str
) -> None:
    """Six that add the same items; each waits 0.2 s for an answer, and then asks again."""
    account, items = Account(), names(60)
    async with store.open(own_server.url, name, driver="async") as seen:
        hasty = Hasty(seen, lambda: 0.2)

        async def work(task: int) -> None:
            for piece in pieces(items, task):
                await account.offer_async(hasty, piece, repeat_on=(asyncio.TimeoutError,))

        for _ in range(3):
            own.client_pause(300)
            await asyncio.gather(*map(work, range(6)))
    store.check(account, own_server.url, name)


@pytest.mark.parametrize("size", [1, 1000])
def test_what_an_error_left_without_an_answer_is_new_in_the_next_call(
    store: Store, url: str, name: str, size: int
) -> None:
    """The reply is lost, and the object does not retry; meanwhile another one makes the store grow."""
    items = names(size)
    with (
        LossyProxy(url) as proxy,
        store.open(proxy.url, name, retry_for=0) as seen,
        store.open(url, name) as other,
    ):
        seen.add("before")
        proxy.lose(seen.add_many, items)
        # A new exact filter has no room for as many at once: the last are not stored yet.
        answers = other.add_many(items)
        assert answers[0] is False
        assert all(other.add_many(f"another {i}" for i in range(5000)))
        assert [not new for new in answers] == seen.add_many(items)
        assert not any(seen.add_many(items))
        assert size + 5001 == store.held(other)


def test_adds_and_clears_at_once_end_in_a_right_store(store: Store, url: str, name: str) -> None:
    """What was new after the last clear is held, once; and no call ends in an error."""
    opened = [store.open(url, name) for _ in range(3)]
    done = threading.Event()

    def clear() -> None:
        # Without a pause, an add on a busy machine may meet 16 clears in a row, which is where it gives up.
        while not done.wait(0.002):
            opened[0].clear()

    def work(seen: Any, kind: str) -> None:
        for turn in range(150 if FULL else 50):
            seen.add_many(names(100, f"{kind} {turn % 3}"))
            seen.add(f"{kind} single")

    with ThreadPoolExecutor(4) as threads:
        clearing = threads.submit(clear)
        jobs = [threads.submit(work, opened[i % 3], f"of {i % 2}") for i in range(3)]
        try:
            for job in jobs:
                job.result()
        finally:
            done.set()
        clearing.result()
    items = [f"of {i} single" for i in range(2)]
    items += [item for i in range(2) for turn in range(3) for item in names(100, f"of {i} {turn}")]
    before = store.held(opened[1])
    assert len(items) - before == sum(opened[2].add_many(items))
    assert len(items) == store.held(opened[0])
    assert not any(opened[1].add_many(items))


def _late_look(store: Store, client: redis.Redis, seen: Any, other: Any) -> Callable[[], Any]:
    """What gives a client a reply of before a clear of which it has learned since."""
    seen.add("first")
    other.clear()
    other.add("second")
    looking = flow_of(seen, "contains", "third")
    late = replies_to(client, next(looking))
    if store is EXACT:  # which reads the layout
        late = replies_to(client, looking.send(late))
    other.clear()
    seen.add("fourth")
    return lambda: looking.send(late)


@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str, indirect=True)
def test_a_late_reply_from_before_a_clear_hides_no_lost_answer(
    store: Store, url: str, name: str, client: redis.Redis
) -> None:
    """Another thread's call has learned of the clear, and lost its answer; then the late reply comes."""
    with (
        LossyProxy(url) as proxy,
        store.open(proxy.url, name, retry_for=0) as seen,
        store.open(url, name) as other,
    ):
        late_reply = _late_look(store, client, seen, other)
        proxy.lose(seen.add, "fifth")
        late_reply()
        assert not other.add("fifth")
        assert seen.add("fifth")


@pytest.mark.parametrize("late_first", [True, False])
@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str, indirect=True)
def test_a_late_reply_from_before_a_clear_hides_no_answer_whose_caller_has_gone(
    store: Store, url: str, name: str, client: redis.Redis, *, late_first: bool
) -> None:
    """It comes between the answers to items that went together and the end of one of their callers, or before that end
    is known."""
    with store.open(url, name) as seen, store.open(url, name) as other:
        late_reply = _late_look(store, client, seen, other)
        asked, item = seen._adding("fifth")
        leaving = Waiting(asked, item, None)
        answers, _ = run(client, asked.many([item]))
        if late_first:
            late_reply()
            leaving.leave()
            hand_out([leaving], answers)
        else:
            hand_out([leaving], answers)
            late_reply()
            leaving.leave()
        assert not other.add("fifth")
        assert [True, False] == [seen.add("fifth"), seen.add("fifth")]
