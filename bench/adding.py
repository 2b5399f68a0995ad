"""An add beside SADD, and beside layout 1's code: by share of duplicates, with asyncio, on each kind of server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from statistics import median
from typing import Any

import redis
import redis.asyncio
from contenders import (
    ADD,
    ADD_MANY,
    SADD,
    SADD_MANY,
    Contender,
    Run,
    after_a_week,
    arguments,
    in_batches,
    one_by_one,
    scrapy_redis,
)
from exact import empty, others, version
from older import older
from race import ratios, run_rounds
from serving import medians, placements
from streams import fingerprints

from tbloom import AsyncTimeBloom
from tbloom.demo.localredis import LocalRedis

#: (%)
SHARES = 0, 50, 95
#: asyncio is measured with this one.
HALF = 50
TASKS = 100
OLDER = {ADD: "layout 1: add", ADD_MANY: "layout 1: add_many"}
ONE_TASK, ALL_TASKS = "asyncio: add, one task", f"asyncio: add, {TASKS} tasks"
ASYNC_SADD = "redis.asyncio: SADD, one task"
#: What each is compared with.
REFERENCES = {
    ADD: SADD,
    OLDER[ADD]: SADD,
    ADD_MANY: SADD_MANY,
    OLDER[ADD_MANY]: SADD_MANY,
    ONE_TASK: ASYNC_SADD,
    ALL_TASKS: ONE_TASK,
}


def adding(
    server: LocalRedis,
    client: redis.Redis,
    *,
    capacity: int,
    rounds: int,
    items: int,
    everywhere: bool,
) -> dict[str, Any]:
    """Medians of interleaved rounds, on the main server and ``everywhere`` else. ``ratio`` (of the rate), ``client_ratio``
    and ``older_ratio`` (of the time in commands) are medians of the rounds' ratios."""
    rows = measured(server, client, capacity, rounds, items)
    for other, its_client in others(version(client)) if everywhere else ():
        rows += measured(other, its_client, capacity, rounds, items)
    servers = [*dict.fromkeys(row["on"] for row in rows)]
    return {"rounds": rounds, "servers": servers, "rows": rows}


def measured(
    server: LocalRedis, client: redis.Redis, capacity: int, rounds: int, items: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    amounts = {"rounds": rounds, "items": items}
    with contenders(server.url, client, capacity) as (plain, in_asyncio):
        for placement, share in product(placements(), SHARES):
            everybody = [*plain, *(in_asyncio if share == HALF else ())]
            where: Any = {"placement": placement, "duplicates": share}
            costs = run_rounds(server, client, everybody, **amounts, **where, group="adding")
            for name, own in costs.items():
                row = {"on": version(client), **where, "name": name, **medians(own)}
                reference = costs[REFERENCES.get(name, name)]
                row["ratio"] = median(ratios(own, reference))
                row["client_ratio"] = median(ratios(reference, own, "client"))
                former = costs.get(OLDER.get(name, ""))
                row["older_ratio"] = former and median(ratios(former, own, "commands"))
                rows.append(row)
    empty(client)
    return rows


@contextmanager
def contenders(
    url: str, client: redis.Redis, capacity: int
) -> Iterator[tuple[list[Contender], list[Contender]]]:
    """The plain ones, and those in asyncio."""
    with ExitStack() as stack:
        former = stack.enter_context(older(url, capacity))
        one, many, task, tasks = (
            stack.enter_context(after_a_week(url, client, name, capacity))
            for name in ("one", "many", "task", "tasks")
        )
        loop = stack.enter_context(asyncio.Runner()).get_loop()
        own = [
            AsyncTimeBloom.from_url(url, seen.config.name, **arguments(capacity))
            for seen in (task, tasks)
        ]
        sadd = redis.asyncio.Redis.from_url(url)
        for each in (sadd, *own):
            stack.callback(lambda each=each: loop.run_until_complete(each.aclose()))
        runs = zip(OLDER.values(), former.runs.values(), strict=True) if former else ()
        sets = [*scrapy_redis(url, fingerprints("stock", capacity))]
        client.copy("one:dupefilter", "async:dupefilter")
        yield (
            [
                Contender(ADD, "`TimeBloom.add`", one_by_one(one.add)),
                Contender(ADD_MANY, "`TimeBloom.add_many`", in_batches(many.add_many)),
                *sets,
                *(Contender(name, "", run, former.clock) for name, run in runs if former),
            ],
            [
                Contender(ONE_TASK, "", at_once(loop, own[0].add, 1)),
                Contender(ALL_TASKS, "", at_once(loop, own[1].add, TASKS)),
                Contender(
                    ASYNC_SADD,
                    "",
                    at_once(loop, lambda item: sadd.sadd("async:dupefilter", item), 1),
                ),
            ],
        )


def at_once(
    loop: asyncio.AbstractEventLoop, add: Callable[[str], Awaitable[Any]], tasks: int
) -> Run:
    """Each of the tasks takes the next item until there is none."""

    async def run(items: Sequence[str]) -> list[bool]:
        answers = [False] * len(items)
        numbers = iter(range(len(items)))

        async def work() -> None:
            for number in numbers:
                answers[number] = bool(await add(items[number]))

        await asyncio.gather(*(work() for _ in range(tasks)))
        return answers

    return lambda items: loop.run_until_complete(run(items))
