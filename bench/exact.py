"""The exact filter compared with other exact stores: memory and speed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import redis

from bench import contenders, contest
from bench.contenders import ADD, ADD_MANY, SADD
from bench.serving import Server, medians, placements
from bench.tables import Table
from tbloom.exact import ExactFilter

EXACT = "`ExactFilter`"
#: Shortest and longest lifetime of an item (s); each batch has another one.
SHORTEST, LONGEST = 3600, 86_400
#: Items that fill a store once before it is measured.
WARM = 10_000

Fill = Callable[[Sequence[str], int], Any]


def measure(
    server: Server, *, sizes: list[int], stock: int, rounds: int, items: int
) -> list[Table]:
    """Memory is measured with ``sizes`` items."""
    return [_memory(server, sizes), _speed(server, stock, rounds, items)]


def _memory(server: Server, sizes: list[int]) -> Table:
    """Bytes per item by store and number of items, that live for 1 to 24 hours."""
    everyone, rows = contest.fingerprints("exact", max(sizes)), dict[str, list[Any]]()
    for size in (WARM, *sizes):  # the 0.5 MB that a server allocates once belong to no item
        with (
            ExactFilter.from_url(server.url, "exact") as seen,
            redis.Redis.from_url(server.url) as client,
        ):
            stores: dict[str, Fill] = {
                EXACT: seen.add_many,
                SADD: lambda some, _, client=client: client.sadd("dupefilter", *some),
                contenders.SET: partial(contenders.set_many, client),
            }
            for name, fill in stores.items():
                before = server.bytes_of_data()
                _fill(fill, everyone[:size])
                if size != WARM:
                    used = (server.bytes_of_data() - before) / size
                    rows.setdefault(name, [name]).append(used)
                server.empty()
    columns = {f"{size:,} items": ".1f" for size in sizes}
    return Table("exact", {"bytes per item": "", **columns}, [*rows.values()])


def _fill(fill: Fill, items: Sequence[str]) -> None:
    chance = random.Random(len(items))
    for start in range(0, len(items), contest.BATCH):
        fill(items[start : start + contest.BATCH], chance.randrange(SHORTEST, LONGEST))


def _speed(server: Server, stock: int, rounds: int, items: int) -> Table:
    """The time of new items, and of seen ones, from call to answer; each contender has ``stock`` items (TimeBloom in each slice)."""
    everyone = contest.fingerprints("stock", stock)
    with (
        ExactFilter.from_url(server.url, "exact one") as one,
        ExactFilter.from_url(server.url, "exact many") as many,
        contenders.after_a_week(server, "one", stock) as seen,
        contenders.after_a_week(server, "many", stock) as seen_many,
    ):
        for exact in (one, many):
            _fill(exact.add_many, everyone)
        everybody = [
            contest.Contender(f"{EXACT}: {ADD}", contest.one_by_one(one.add)),
            contest.Contender(f"{EXACT}: {ADD_MANY}", contest.in_batches(many.add_many)),
            contest.Contender(f"`TimeBloom`: {ADD}", contest.one_by_one(seen.add)),
            contest.Contender(f"`TimeBloom`: {ADD_MANY}", contest.in_batches(seen_many.add_many)),
            *contenders.scrapy_redis(server.url, everyone),
            contenders.set_nx_ex(server.url, everyone),
        ]
        costs = {
            kind: contest.hold(server, everybody, rounds=rounds, items=items, duplicates=share)
            for kind, share in {"new": 0, "seen": 100}.items()
        }
    server.empty()
    ways = [(placement, kind) for placement in placements() for kind in costs]
    rows: list[list[Any]] = [
        [each.name, *(medians(costs[kind][where, each.name])["elapsed"] for where, kind in ways)]
        for each in everybody
    ]
    columns = {f"{placement}: {kind}": ".1f" for placement, kind in ways}
    return Table("exact-speed", {"us": "", **columns}, rows)
