"""Adds of many tasks, and of many threads, at the same time, beside as many SADDs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import redis
import redis.asyncio

from bench import contest
from bench.contenders import after_a_week, arguments
from bench.serving import Server
from bench.tables import Table
from tbloom import AsyncTimeBloom

TASKS, THREADS = (1, 100), (1, 16, 64)
#: Each way to add, what it is compared with, and by how many at the same time.
WAYS = [
    ("`AsyncTimeBloom.add`, tasks", "redis.asyncio: `SADD`", TASKS),
    ("`TimeBloom.add`, threads", "redis-py: `SADD`", THREADS),
]


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """Figures of interleaved rounds."""
    with _contenders(server, capacity) as contenders:
        costs = contest.hold(server, contenders, rounds=rounds, items=items)
    server.empty()
    rows = [
        [way, count, *contest.cells(costs, f"{way} {count}", f"{reference} {count}")]
        for way, reference, counts in WAYS
        for count in counts
    ]
    return [Table("asyncio", {"": "", "at once": "d", **contest.COLUMNS}, rows)]


@contextmanager
def _contenders(server: Server, capacity: int) -> Iterator[list[contest.Contender]]:
    """Each way by each number, with ``capacity`` items in each of its slices, or in its set."""
    stock = contest.fingerprints("stock", capacity)
    for start in range(0, capacity, 1000):
        server.client.sadd("stock", *stock[start : start + 1000])
    [(task_add, task_sadd, _), (thread_add, thread_sadd, _)] = WAYS
    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner()).get_loop()
        runs: dict[str, contest.Run] = {}
        for count in TASKS:
            filled = stack.enter_context(after_a_week(server, f"tasks {count}", capacity))
            seen = AsyncTimeBloom.from_url(server.url, filled.config.name, **arguments(capacity))
            client = redis.asyncio.Redis.from_url(server.url, max_connections=count)
            for each in (seen, client):
                stack.callback(lambda each=each: loop.run_until_complete(each.aclose()))
            runs[f"{task_add} {count}"] = by_tasks(loop, seen.add, count)
            sadd = _adder(server, client, f"set of tasks {count}")
            runs[f"{task_sadd} {count}"] = by_tasks(loop, sadd, count)
        for count in THREADS:
            pool = stack.enter_context(ThreadPoolExecutor(count))
            filled = stack.enter_context(after_a_week(server, f"threads {count}", capacity))
            pooled = stack.enter_context(redis.Redis.from_url(server.url, max_connections=count))
            runs[f"{thread_add} {count}"] = by_threads(pool, filled.add, count)
            sadd = _adder(server, pooled, f"set of threads {count}")
            runs[f"{thread_sadd} {count}"] = by_threads(pool, sadd, count)
        yield [contest.Contender(name, run, in_order=False) for name, run in runs.items()]


def _adder(server: Server, client: Any, key: str) -> Callable[[str], Any]:
    server.client.copy("stock", key)
    return lambda item: client.sadd(key, item)


def by_tasks(
    loop: asyncio.AbstractEventLoop, add: Callable[[str], Awaitable[Any]], count: int
) -> contest.Run:
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


def by_threads(pool: ThreadPoolExecutor, add: Callable[[str], Any], count: int) -> contest.Run:
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
