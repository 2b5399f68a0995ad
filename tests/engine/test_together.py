"""Items that are asked for while a call is on its way go together in the next one, and each caller keeps its own answer."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
import redis

from tbloom import AsyncTimeBloom, ConfigError, FilterFull, TimeBloom
from tbloom.engine.together import Asked, Waiting, hand_out
from tbloom.exact import AsyncExactFilter
from tests.helpers.forks import in_child, needs_fork
from tests.helpers.interrupts import interrupted
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needs_kept
from tests.helpers.proxy import Fault, Proxy

STORES = [AsyncTimeBloom, AsyncExactFilter]
each_store = pytest.mark.parametrize("store", STORES)


class Faults:
    """A fault for every n-th call."""

    def __init__(self, fault: Fault, every: int) -> None:
        self._fault, self._every = fault, every

    def __call__(self, number: int) -> Fault | None:
        return self._fault if number % self._every == self._every - 1 else None


class Calls:
    """Counts the calls of scripts that reach a server through a proxy."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, _: int) -> Fault | None:
        self.number += 1
        return None


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def counted(url: str, calls: Calls) -> Iterator[Proxy]:
    with Proxy(url, calls) as proxy:
        yield proxy


@pytest.mark.parametrize("verb", ["add", "add_many"])
async def test_an_item_whose_caller_has_left_waits_for_its_first_answer(
    url: str, name: str, verb: str
) -> None:
    """The task is cancelled while others' items go with its own; the reply to all of them comes too late."""
    faults = iter([None, Fault.LATE_REPLY])
    begun = asyncio.Event()

    def choose(_: int) -> Fault | None:
        return next(faults, None) if begun.is_set() else None

    with Proxy(url, choose, late=2) as proxy:
        address = f"{proxy.url}?socket_timeout=1"
        async with AsyncTimeBloom.from_url(address, name, retry_for=0) as seen:
            for item in "ab":
                await seen.add(item)
            begun.set()
            alone, leaving, staying = (asyncio.create_task(seen.add(item)) for item in "cde")
            assert await alone
            while not proxy.struck:  # noqa: ASYNC110 - the proxy has threads
                await asyncio.sleep(0.001)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert await (seen.add("d") if verb == "add" else seen.add_many(["d"])) in (
                True,
                [True],
            )
            with pytest.raises(redis.TimeoutError):
                await staying
            assert await seen.add("e")


@each_store
async def test_items_of_many_tasks_go_in_few_calls(
    store: Any, counted: Proxy, calls: Calls, name: str
) -> None:
    async with store.from_url(counted.url, name) as seen:
        await seen.add("the store begins")
        before = calls.number
        answers = await asyncio.gather(*[seen.add(f"item {i}") for i in range(1000)])
        assert all(answers)
        assert calls.number - before <= 1000 / 50
        before = calls.number
        assert all(await asyncio.gather(*[seen.contains(f"item {i}") for i in range(1000)]))
        assert calls.number - before <= 1000 / 50


@each_store
async def test_a_lone_item_goes_at_once(
    store: Any, counted: Proxy, calls: Calls, name: str
) -> None:
    async with store.from_url(counted.url, name) as seen:
        await seen.add("the store begins")
        before = calls.number
        for i in range(20):
            assert await seen.add(f"item {i}")
        assert calls.number - before == 20


@each_store
async def test_of_tasks_that_add_the_same_item_one_gets_new(
    store: Any, url: str, name: str
) -> None:
    async with store.from_url(url, name) as seen:
        for turn in range(20):
            answers = await asyncio.gather(*[seen.add(f"item {turn}") for _ in range(10)])
            assert Counter({True: 1, False: 9}) == Counter(answers)


@each_store
async def test_an_item_that_can_t_be_right_is_its_caller_s_alone(
    store: Any, url: str, name: str
) -> None:
    async with store.from_url(url, name) as seen:
        answers = await asyncio.gather(
            *[seen.add(item) for item in ("a", "", "b", None, "c")], return_exceptions=True
        )
    assert [True, True, True] == answers[::2]
    assert all(isinstance(error, ConfigError) for error in answers[1::2])


async def test_a_full_slice_refuses_new_items_only(url: str, name: str) -> None:
    async with AsyncTimeBloom.from_url(url, name, capacity=10, grow=False) as seen:
        items = [f"item {i}" for i in range(15)]
        answers = await asyncio.gather(*map(seen.add, items), return_exceptions=True)
        new = [item for item, answer in zip(items, answers, strict=True) if answer is True]
        assert len(new) == 10
        assert all(isinstance(answer, FilterFull) for answer in answers if answer is not True)
        again = await asyncio.gather(*map(seen.add, items), return_exceptions=True)
        seen_now = [item for item, answer in zip(items, again, strict=True) if answer is False]
        assert new == seen_now


async def test_each_caller_has_its_own_within(name: str, clockwork: Any) -> None:
    async with AsyncTimeBloom.from_url(clockwork.server.url, name) as seen:
        await asyncio.gather(*[seen.add(f"item {i}") for i in range(20)])
        clockwork.set("2019-06-04 12:00:00")
        await seen.add("today's")
        looks = [seen.contains(f"item {i}", 1 if i % 2 else None) for i in range(20)]
        assert [True, False] * 10 == await asyncio.gather(*looks)
        adds = [seen.add(f"item {i}", 1 if i % 2 else None) for i in range(20)]
        assert [False, True] * 10 == await asyncio.gather(*adds)


async def test_what_is_in_the_local_cache_is_seen_by_all(url: str, name: str) -> None:
    async with AsyncTimeBloom.from_url(url, name, cache_size=100) as seen:
        await seen.add("a")
        looks = [seen.contains(item) for item in ("b", "a", "a", "c")]
        assert [False, True, True, False] == await asyncio.gather(*looks)


@each_store
async def test_what_cancelled_tasks_have_added_is_new_for_the_next(
    store: Any, url: str, name: str
) -> None:
    """They are cancelled before their call, in it, and after its reply."""
    async with store.from_url(url, name) as seen:
        items, told = [f"item {i}" for i in range(600)], Counter[str]()

        async def add(item: str) -> None:
            if await seen.add(item):
                told[item] += 1

        for start in range(0, len(items), 60):
            tasks = [asyncio.create_task(add(item)) for item in items[start : start + 60]]
            for number, task in enumerate(tasks):
                if number % 3 == 0:
                    await asyncio.sleep(0)
                if number % 2:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for item in items:
            await add(item)
        assert dict.fromkeys(items, 1) == told


@each_store
async def test_an_outage_is_each_task_s_own(store: Any, name: str, own_server: LocalRedis) -> None:
    """Tasks that come while another one's call is tried again neither fail with it nor wait for it."""
    async with store.from_url(own_server.url, name, retry_for=60) as patient:
        await patient.add("the store begins")
        own_server.process.send_signal(signal.SIGSTOP)
        try:
            waiting = [asyncio.create_task(patient.add(f"item {i}")) for i in range(30)]
            await asyncio.sleep(0.1)
            waiting += [asyncio.create_task(patient.add(f"item {i}")) for i in range(30, 60)]
            await asyncio.wait(waiting, timeout=0.1)
            assert not any(task.done() for task in waiting)
        finally:
            own_server.process.send_signal(signal.SIGCONT)
        assert all(await asyncio.gather(*waiting))


@each_store
async def test_tasks_get_errors_of_their_own(store: Any, name: str, own_server: LocalRedis) -> None:
    async with store.from_url(f"{own_server.url}?socket_timeout=0.2", name, retry_for=0.1) as seen:
        await seen.add("the store begins")
        own_server.process.send_signal(signal.SIGSTOP)
        try:
            adds = [seen.add(f"item {i}") for i in range(30)]
            errors = await asyncio.gather(*adds, return_exceptions=True)
        finally:
            own_server.process.send_signal(signal.SIGCONT)
        assert all(isinstance(error, redis.RedisError) for error in errors)
        assert len({id(error) for error in errors}) == 30
        assert all(await asyncio.gather(*[seen.add(f"item {i}") for i in range(30)]))


@needs_kept
def test_a_few_threads_ask_alone(name: str, own_server: LocalRedis) -> None:
    with (
        redis.Redis.from_url(own_server.url) as client,
        TimeBloom.from_url(own_server.url, name, retry_for=60) as seen,
        ThreadPoolExecutor(4) as threads,
    ):
        seen.add("the filter begins")
        client.config_resetstat()
        assert all(threads.map(seen.add, [f"item {i}" for i in range(800)]))
        # More, if a reply came too late.
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 800


@needs_kept
@pytest.mark.parametrize("verb", ["add", "contains"])
def test_items_of_threads_that_wait_go_in_few_calls(
    verb: str, name: str, own_server: LocalRedis
) -> None:
    """20 threads ask while the server stands still."""
    items = [f"item {i}" for i in range(20)]
    with (
        redis.Redis.from_url(own_server.url) as client,
        TimeBloom.from_url(own_server.url, name, retry_for=60) as seen,
        ThreadPoolExecutor(20) as threads,
    ):
        for item in "the filter begins", "the usual call is prepared":
            seen.add(item)
            seen.contains(item)
        client.config_resetstat()
        own_server.process.send_signal(signal.SIGSTOP)
        try:
            jobs = [threads.submit(getattr(seen, verb), item) for item in items]
            wait(jobs, timeout=1)
            assert not any(job.done() for job in jobs)
        finally:
            own_server.process.send_signal(signal.SIGCONT)
        assert [verb == "add"] * 20 == [job.result() for job in jobs]
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 10
        assert [verb == "add"] * 20 == seen.contains_many(items)


@needs_kept
@each_store
def test_two_event_loops_do_not_send_for_each_other(store: Any, url: str, name: str) -> None:
    """The calls of one lose their connections; asyncio's debug mode refuses what comes from another thread."""
    faults = Faults(Fault.CUT_REPLY, every=3)
    with Proxy(url, faults) as proxy:
        seen = store.from_url(proxy.url, name)

        async def add(loop: int) -> int:
            adds = [seen.add(f"item {loop} {i}") for i in range(200)]
            found = sum(await asyncio.gather(*adds))
            for start in range(0, 200, 50):
                some = [f"many {loop} {start + i}" for i in range(50)]
                found += sum(await seen.add_many(some))
            return found

        with ThreadPoolExecutor(2) as threads:
            runs = [threads.submit(asyncio.run, add(loop), debug=True) for loop in range(2)]
            assert [400, 400] == [run.result() for run in runs]


def test_an_answer_comes_once_whoever_is_first() -> None:
    """The caller is interrupted as its answer comes: one of both keeps the item, not both."""
    kept = list[str]()
    asked = Asked("add", None, None, None, lambda item, _: kept.append(item))  # type: ignore[arg-type]
    for steps in ("take", "leave"), ("leave", "take"):
        waiting = Waiting(asked, " then ".join(steps), None)
        for step in steps:
            if step == "take":
                waiting.take({waiting.item: True})
            else:
                waiting.leave()
    assert ["take then leave", "leave then take"] == kept


def test_who_still_waits_gets_new_before_who_has_left() -> None:
    asked = Asked("add", None, None, None, lambda *_: None)  # type: ignore[arg-type]
    gone, waits = Waiting(asked, "item", None), Waiting(asked, "item", None)
    gone.leave()
    hand_out([gone, waits], {"item": True})
    assert waits.answer is True


def test_of_threads_that_begin_and_grow_a_filter_each_gets_its_answer(url: str, name: str) -> None:
    """They learn layouts from each other, between any two steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(20):
            with (
                TimeBloom.from_url(url, f"{name} {turn}", capacity=20) as seen,
                ThreadPoolExecutor(8) as threads,
            ):
                items = [f"item {i}" for i in range(240)]
                assert 240 - 1 <= sum(threads.map(seen.add, items)) <= 240
    finally:
        sys.setswitchinterval(before)


def test_of_threads_that_add_the_same_items_one_gets_new(url: str, name: str) -> None:
    """The main thread is one of them; nobody is waited for who has an answer."""
    items, told = [f"item {i}" for i in range(500)], Counter[str]()

    def add(seed: int) -> list[str]:
        return [item for item in items[seed:] + items[:seed] if seen.add(item)]

    with TimeBloom.from_url(url, name) as seen, ThreadPoolExecutor(16) as threads:
        jobs = [threads.submit(add, seed) for seed in range(16)]
        for new in add(16), *[job.result() for job in jobs]:
            told.update(new)
        assert all(threads.map(seen.contains, items))
        assert not seen._adds.waiting
    assert dict.fromkeys(items, 1) == told


@needs_kept
@pytest.mark.parametrize("waits", [False, True])
def test_a_thread_that_is_interrupted_leaves_its_item_to_the_next(
    name: str, own_server: LocalRedis, *, waits: bool
) -> None:
    """The server stands still; the main thread's item is on its way, or waits for another thread's."""
    with (
        TimeBloom.from_url(own_server.url, name, retry_for=60) as seen,
        ThreadPoolExecutor(8) as threads,
    ):
        for item in "the filter begins", "the usual call is prepared":
            seen.add(item)
        own_server.process.send_signal(signal.SIGSTOP)
        try:
            others = [threads.submit(seen.add, f"item {i}") for i in range(8 if waits else 0)]
            wait(others, timeout=0.2)
            assert interrupted(lambda: seen.add("main"), 0.05 if waits else 0.3) is None
            others += [threads.submit(seen.add, "other") for _ in range(2)]
        finally:
            own_server.process.send_signal(signal.SIGCONT)
        assert sum(job.result() for job in others) == len(others) - 1
        assert [True, False] == [seen.add("main"), seen.add("main")]


@needs_fork
def test_a_child_that_is_forked_while_threads_wait_sends_for_itself(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name) as seen:
        seen.add("the filter begins")
        is_over = threading.Event()

        def add() -> None:
            for i in range(1_000_000):
                if is_over.is_set():
                    return
                seen.add(f"{threading.get_ident()} {i}")

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(5):
                assert in_child(
                    lambda turn=turn: [seen.add(f"child {turn}") for _ in range(3)]
                ) == [
                    True,
                    False,
                    False,
                ]
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
