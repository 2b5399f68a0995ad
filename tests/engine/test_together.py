"""Items that are asked for while a call is on its way go together in the next one, and each caller keeps its own answer."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tbloom import AsyncTimeBloom, ConfigError, FilterFull, TimeBloom
from tbloom.engine.together import Asked, Waiting, hand_out
from tbloom.exact import AsyncExactFilter
from tests.helpers.localredis import LocalRedis
from tests.helpers.proxy import Fault, Proxy

STORES = [AsyncTimeBloom, AsyncExactFilter]
each_store = pytest.mark.parametrize("store", STORES)


@pytest.fixture
def counted(url: str) -> Iterator[Proxy]:
    with Proxy(url, lambda _: None) as proxy:
        yield proxy


@each_store
async def test_items_of_many_tasks_go_in_few_calls(store: Any, counted: Proxy, name: str) -> None:
    """And a lone item goes at once."""
    async with store.from_url(counted.url, name) as seen:
        await seen.add("the store begins")
        items, before = [f"item {i}" for i in range(1000)], counted.calls
        for verb in (seen.add, seen.contains):
            assert all(await asyncio.gather(*map(verb, items)))
            assert counted.calls - before <= 1000 / 50
            before = counted.calls
        for i in range(20):
            assert await seen.add(f"lone {i}")
        assert counted.calls - before == 20


@each_store
async def test_a_second_item_does_not_wait_for_the_first(store: Any, url: str, name: str) -> None:
    """Two calls are on their way at once: the server has the next one while the client hands out answers."""
    faults: list[Fault] = []
    with Proxy(url, lambda _: faults.pop() if faults else None, late=2) as proxy:
        async with store.from_url(f"{proxy.url}?socket_timeout=30", name) as seen:
            await seen.add("the store begins")
            faults.append(Fault.LATE_REPLY)
            first = asyncio.create_task(seen.contains("first"))
            await asyncio.sleep(0)
            assert await seen.contains("the store begins")
            assert not first.done()
            assert not await first


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
        asked = [seen.contains(f"item {i}", 1 if i % 2 else None) for i in range(20)]
        assert [True, False] * 10 == await asyncio.gather(*asked)
        adds = [seen.add(f"item {i}", 1 if i % 2 else None) for i in range(20)]
        assert [False, True] * 10 == await asyncio.gather(*adds)


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


def test_who_still_waits_gets_new_before_who_has_left() -> None:
    asked = Asked("add", None, None, None, lambda *_: None)  # type: ignore[arg-type]
    gone, waits = Waiting(asked, "item", None), Waiting(asked, "item", None)
    gone.leave()
    hand_out([gone, waits], {"item": True})
    assert waits.answer is True


def test_an_answer_that_comes_as_its_caller_leaves_is_kept() -> None:
    """Before, or after."""
    kept: list[str] = []
    for leaves_first in (True, False):
        waiting = Waiting(
            Asked("add", None, None, lambda item, _: kept.append(item)),  # type: ignore[arg-type]
            f"item {leaves_first}",
            None,  # type: ignore[arg-type]
        )
        if leaves_first:
            waiting.leave()
        hand_out([waiting], {waiting.item: True})
        if not leaves_first:
            waiting.leave()
    assert ["item True", "item False"] == kept


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
