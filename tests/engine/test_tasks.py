"""Tasks that share a filter: each gets the replies to its own calls, whatever befalls others, and waits for a connection."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from redis._parsers import _AsyncRESP2Parser

from tbloom import AsyncTimeBloom, TBloomError
from tbloom.exact import AsyncExactFilter
from tests.engine.test_connections import connections, named
from tests.helpers.account import NO_ANSWER
from tests.helpers.stores import DISTINCT, EXACT, Store

TASKS, TURNS = 100, 10
#: A busy machine opens a caller's connections, which are not tried again, while thousands of tasks begin.
PATIENT = "?socket_timeout=60&socket_connect_timeout=60"


@pytest.fixture
async def seen(url: str, name: str) -> AsyncIterator[AsyncTimeBloom]:
    """Its connections are found by the name."""
    async with AsyncTimeBloom.from_url(named(url, name), name, error_rate=1e-9) as seen:
        yield seen


async def add_until_answered(seen: AsyncTimeBloom, item: str) -> bool:
    """Some errors last longer than the filter's own retries."""
    while True:
        with suppress(*NO_ANSWER):
            return await seen.add(item)


async def answers_to(seen: AsyncTimeBloom, items: int) -> Counter[tuple[str, bool]]:
    """How often each answer was given, where TASKS tasks share the items and two of them add each."""
    answers = Counter[tuple[str, bool]]()

    async def work(task: int) -> None:
        for i in range(task // 2, items, TASKS // 2):
            answers[f"item {i}", await add_until_answered(seen, f"item {i}")] += 1
        if task % 10 == 0:
            some = [f"item {i}" for i in range(0, items, 7)]
            assert len(some) == len(await seen.contains_many(some))

    await asyncio.gather(*map(work, range(TASKS)))
    return answers


def each_twice(items: int) -> Counter[tuple[str, bool]]:
    """Each item was new once, and seen once."""
    return Counter((f"item {i}", new) for i in range(items) for new in (True, False))


async def test_few_connections_serve_all_tasks(
    seen: AsyncTimeBloom, name: str, client: redis.Redis
) -> None:
    """Calls of one and of many commands, in any order; those of one task go over one."""
    for item in "ab":
        assert await seen.add(item)
    assert len(connections(client, name)) == 1
    assert each_twice(1000) == await answers_to(seen, 1000)
    assert [None] * 500 == await asyncio.gather(*(seen.last_seen("other") for _ in range(500)))
    assert len(connections(client, name)) <= 50
    assert 1002 == (await seen.info()).items


@pytest.mark.parametrize("callers", [False, True], ids=["from_url", "a caller's client"])
@pytest.mark.parametrize("kind", [EXACT, DISTINCT], ids=str)
@pytest.mark.parametrize(("tasks", "query"), [(2000, PATIENT), (30, "?max_connections=1")])
async def test_many_tasks_wait_for_a_connection(
    url: str, name: str, kind: Store, tasks: int, query: str, *, callers: bool
) -> None:
    """More than the pool may have at once: no call fails."""
    kept = kind.open(url + query, name, driver="async", callers=callers)
    items = [f"item {i // 2}" for i in range(tasks)]
    assert tasks // 2 == sum(await asyncio.gather(*map(kept.add, items)))
    assert [True] * tasks == await asyncio.gather(*map(kept.contains, items))
    await kept.aclose()
    await kept.client.aclose()


async def test_cancelled_while_they_wait_for_a_connection(url: str, name: str) -> None:
    """The connection goes to those that are left."""
    async with AsyncExactFilter.from_url(f"{url}?max_connections=1", name) as seen:
        assert await seen.add("a")
        tasks = [asyncio.create_task(seen.add(f"{i}")) for i in range(30)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [True] * 15 == answers[1::2]
        # The first one has a connection; redis-py 5 may lose a cancellation as it looks whether that is open.
        assert {asyncio.CancelledError} == {*map(type, answers[2::2])}
        assert not await seen.add("a")


@pytest.mark.parametrize("kind", [AsyncTimeBloom, AsyncExactFilter])
async def test_a_cancelled_task_takes_no_reply_from_others(url: str, name: str, kind: Any) -> None:
    """Whenever that is; its item is new to the next call."""
    seen, rng, account = kind.from_url(url, name), random.Random(18), Counter[tuple[str, bool]]()
    for turn in range(TURNS):
        items = [f"{turn} {i}" for i in range(TASKS)]
        tasks = [asyncio.create_task(seen.add(item)) for item in items]
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        cancelled = {task for task in tasks if rng.random() < 0.3 and task.cancel()}
        for item, task in zip(items, tasks, strict=True):
            with suppress(asyncio.CancelledError):
                account[item, await task] += 1
                assert task not in cancelled
        for item in items:
            account[item, await seen.add(item)] += 1
            account[item, await seen.add(item)] += 1
    new = [item for (item, is_new), times in account.items() if is_new for _ in range(times)]
    assert len(new) == len({*new}) == TURNS * TASKS
    assert TURNS * TASKS == (await seen.info()).items
    await seen.aclose()


def test_another_event_loop_is_refused(url: str, name: str) -> None:
    """As in a forked process: redis-py's connections belong to the first one."""
    seen = AsyncTimeBloom.from_url(url, name)

    async def use() -> None:
        assert await seen.add("a")
        for coroutine in (seen.add("b"), seen.info()):
            with ThreadPoolExecutor(1) as thread, pytest.raises(TBloomError, match="event loop"):
                thread.submit(asyncio.run, coroutine).result()
        assert await seen.add("b")
        await seen.aclose()

    asyncio.run(use())


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "last_seen", "info"])
def test_without_asyncios_event_loop_one_sentence_says_so(name: str, verb: str) -> None:
    """As under Trio, which sends None to a coroutine, too."""
    seen = AsyncTimeBloom.from_url("redis://localhost", name)
    coroutine = getattr(seen, verb)(*([] if verb == "info" else ["a"]))
    with pytest.raises(TBloomError, match="the Async classes need asyncio: its event loop"):
        coroutine.send(None)


@pytest.mark.parametrize("reader", ["hiredis", "redis-py's own"])
@pytest.mark.parametrize("query", ["protocol=2", "protocol=3", "decode_responses=True"])
async def test_every_protocol(url: str, name: str, query: str, reader: str) -> None:
    address = f"{url}?{query}&max_connections=200"
    async with AsyncTimeBloom.from_url(address, name, error_rate=1e-9) as seen:
        if reader != "hiredis":  # as where it is not installed
            seen.client.connection_pool.connection_kwargs["parser_class"] = _AsyncRESP2Parser
        assert each_twice(500) == await answers_to(seen, 500)
        await seen.client.script_flush()
        assert not await seen.add("item 1")
        assert 500 == (await seen.info()).items
