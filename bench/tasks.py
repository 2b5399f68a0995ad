"""Adds by many tasks and by many threads at once, compared with SADD by as many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis
import redis.asyncio

from bench import contest
from bench.contenders import after_a_week, arguments, set_of
from bench.contest import Contender
from bench.serving import Server
from bench.tables import Table
from tbloom import AsyncTimeBloom

TASKS, THREADS = "`AsyncTimeBloom.add`, tasks", "`TimeBloom.add`, threads"


def measure(
    server: Server, *, capacity: int = 1_000_000, rounds: int = 7, items: int = 4000
) -> list[Table]:
    """Return the figures. Each contender has ``capacity`` items at first, in each older slice or in its set."""
    with (
        by_tasks(server, capacity, 1) as one,
        by_tasks(server, capacity, 100) as hundred,
        by_threads(server, capacity, 16) as threads,
    ):
        costs = contest.hold(server, [*one, *hundred, *threads], rounds, items)
    server.empty()
    rows = [
        [way, count, *contest.cells(costs, f"{way} {count}", f"SADD by {way} {count}")]
        for way, count in ((TASKS, 1), (TASKS, 100), (THREADS, 16))
    ]
    return [Table("tasks", {"": "", "at once": "d", **contest.COLUMNS}, rows)]


@contextmanager
def by_tasks(server: Server, capacity: int, count: int) -> Iterator[list[Contender]]:
    """Yield a contender of ``count`` tasks that call ``add``, and one of as many that call SADD."""
    name = f"{TASKS} {count}"
    with after_a_week(server, name, capacity), asyncio.Runner() as runner:
        seen = AsyncTimeBloom.from_url(server.url, name, **arguments(capacity))
        client = redis.asyncio.Redis.from_url(server.url, max_connections=count)
        key = set_of(server, f"set of {name}", capacity)

        def contender(name: str, add: Callable[[str], Awaitable[object]]) -> Contender:
            async def run(items: Sequence[str]) -> list[bool]:
                answers = [False] * len(items)
                numbers = iter(range(len(items)))

                async def work() -> None:
                    for number in numbers:
                        answers[number] = bool(await add(items[number]))

                await asyncio.gather(*(work() for _ in range(count)))
                return answers

            return Contender(name, lambda items: runner.run(run(items)), in_order=False)

        sadd = contender(f"SADD by {name}", lambda item: client.sadd(key, item))
        yield [contender(name, seen.add), sadd]
        for each in (seen, client):
            runner.run(each.aclose())


@contextmanager
def by_threads(server: Server, capacity: int, count: int) -> Iterator[list[Contender]]:
    """Yield a contender of ``count`` threads that call ``add``, and one of as many that call SADD."""
    name = f"{THREADS} {count}"
    with (
        after_a_week(server, name, capacity) as seen,
        redis.Redis.from_url(server.url, max_connections=count) as client,
        ThreadPoolExecutor(count) as pool,
    ):
        key = set_of(server, f"set of {name}", capacity)

        def contender(name: str, add: Callable[[str], object]) -> Contender:
            def run(items: Sequence[str]) -> list[bool]:
                answers = [False] * len(items)
                numbers = iter(range(len(items)))

                def work() -> None:
                    for number in numbers:
                        answers[number] = bool(add(items[number]))

                for done in [pool.submit(work) for _ in range(count)]:
                    done.result()
                return answers

            return Contender(name, run, in_order=False)

        sadd = contender(f"SADD by {name}", lambda item: client.sadd(key, item))
        yield [contender(name, seen.add), sadd]
