"""Adds of many tasks, and of many threads, at the same time, beside as many SADDs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import redis
import redis.asyncio
from contenders import Contender, Run, after_a_week, arguments
from exact import empty
from race import compared, ratios, run_rounds
from serving import placements
from streams import fingerprints

from tbloom import AsyncTimeBloom
from tbloom.demo.localredis import LocalRedis

TASKS, THREADS = (1, 100), (1, 16, 64)
ASYNC_ADD, ASYNC_SADD = "`AsyncTimeBloom.add`, tasks", "redis.asyncio: `SADD`, tasks"
THREAD_ADD, THREAD_SADD = "`TimeBloom.add`, threads", "redis-py: `SADD`, threads"
#: For each way to ask: what it is compared with, and by how many at the same time.
WAYS = {
    ASYNC_ADD: (ASYNC_SADD, TASKS),
    ASYNC_SADD: (ASYNC_SADD, TASKS),
    THREAD_ADD: (THREAD_SADD, THREADS),
    THREAD_SADD: (THREAD_SADD, THREADS),
}


def together(
    server: LocalRedis, client: redis.Redis, *, capacity: int, rounds: int, items: int
) -> dict[str, Any]:
    """Figures of interleaved rounds. ``ratio`` is to SADD by as many, ``to_one`` (of the rate) to the same way by one."""
    rows = []
    with contenders(server.url, client, capacity) as everybody:
        for placement in placements():
            costs = run_rounds(
                server,
                client,
                everybody,
                rounds=rounds,
                items=items,
                placement=placement,
                group="together",
            )
            for way, (reference, counts) in WAYS.items():
                for count in counts:
                    own, one = costs[f"{way} {count}"], costs[f"{way} 1"]
                    row = {"placement": placement, "name": way, "count": count}
                    row |= compared(own, costs[f"{reference} {count}"])
                    rows.append({**row, "to_one": median(ratios(own, one))})
    empty(client)
    return {"rounds": rounds, "items": items, "rows": rows}


@contextmanager
def contenders(url: str, client: redis.Redis, capacity: int) -> Iterator[list[Contender]]:
    """Each way by each number, with ``capacity`` items in each of its slices, or in its set."""
    stock = fingerprints("stock", capacity)
    for start in range(0, capacity, 1000):
        client.sadd("stock", *stock[start : start + 1000])
    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner()).get_loop()
        runs: dict[str, Run] = {}
        for count in TASKS:
            filled = stack.enter_context(after_a_week(url, client, f"tasks {count}", capacity))
            seen = AsyncTimeBloom.from_url(url, filled.config.name, **arguments(capacity))
            server = redis.asyncio.Redis.from_url(url, max_connections=count)
            for each in (seen, server):
                stack.callback(lambda each=each: loop.run_until_complete(each.aclose()))
            runs[f"{ASYNC_ADD} {count}"] = of_tasks(loop, seen.add, count)
            sadd = _adder(client, server, f"set of tasks {count}")
            runs[f"{ASYNC_SADD} {count}"] = of_tasks(loop, sadd, count)
        for count in THREADS:
            pool = stack.enter_context(ThreadPoolExecutor(count))
            filled = stack.enter_context(after_a_week(url, client, f"threads {count}", capacity))
            pooled = stack.enter_context(redis.Redis.from_url(url, max_connections=count))
            runs[f"{THREAD_ADD} {count}"] = of_threads(pool, filled.add, count)
            sadd = _adder(client, pooled, f"set of threads {count}")
            runs[f"{THREAD_SADD} {count}"] = of_threads(pool, sadd, count)
        yield [Contender(name, "", run, in_order=False) for name, run in runs.items()]


def _adder(client: redis.Redis, server: Any, key: str) -> Callable[[str], Any]:
    client.copy("stock", key)
    return lambda item: server.sadd(key, item)


def of_tasks(
    loop: asyncio.AbstractEventLoop, add: Callable[[str], Awaitable[Any]], count: int
) -> Run:
    """Each task takes the next item until there is none."""

    async def run(items: Sequence[str]) -> list[bool]:
        answers = [False] * len(items)
        numbers = iter(range(len(items)))

        async def work() -> None:
            for number in numbers:
                answers[number] = bool(await add(items[number]))

        await asyncio.gather(*(work() for _ in range(count)))
        return answers

    return lambda items: loop.run_until_complete(run(items))


def of_threads(pool: ThreadPoolExecutor, add: Callable[[str], Any], count: int) -> Run:
    """Each thread takes the next item until there is none."""

    def run(items: Sequence[str]) -> list[bool]:
        answers = [False] * len(items)
        numbers = iter(range(len(items)))

        def work() -> None:
            for number in numbers:
                answers[number] = bool(add(items[number]))

        for done in [pool.submit(work) for _ in range(count)]:
            done.result()
        return answers

    return run
