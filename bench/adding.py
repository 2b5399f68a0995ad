"""An add beside SADD and RedisBloom by share of duplicates, and where its time goes."""

from __future__ import annotations

from typing import Any

from bench import contenders, contest, steps
from bench.contenders import ADD, ADD_MANY, REDISBLOOM_MANY, SADD, SADD_MANY
from bench.serving import Server
from bench.tables import Table

#: (%) With 0 all items are new.
SHARES = 0, 50, 95
#: By table: what is compared with what.
PAIRS = {
    "adding": [(ADD, SADD), (ADD_MANY, SADD_MANY)],
    "adding-redisbloom": [(ADD_MANY, REDISBLOOM_MANY)],
}


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """Figures of interleaved rounds."""
    stock = contest.fingerprints("stock", capacity)
    with (
        contenders.after_a_week(server, "one", capacity) as one,
        contenders.after_a_week(server, "many", capacity) as many,
    ):
        everybody = [
            contest.Contender(ADD, contest.one_by_one(one.add)),
            contest.Contender(ADD_MANY, contest.in_batches(many.add_many)),
            *contenders.scrapy_redis(server.url, stock),
            *(
                [*contenders.redisbloom(server.url, capacity, stock)][-1:]
                if server.redisbloom
                else ()
            ),
        ]
        costs = {
            share: contest.hold(server, everybody, rounds=rounds, items=items, duplicates=share)
            for share in SHARES
        }
    server.empty()
    tables = [
        _table(name, pairs, costs)
        for name, pairs in PAIRS.items()
        if server.redisbloom or name == "adding"
    ]
    return [*tables, *steps.tables(server, capacity, rounds, items)]


def _table(name: str, pairs: list[tuple[str, str]], costs: dict[int, contest.Costs]) -> Table:
    """The rows of each pair, by share."""
    beside = "`SADD`" if name == "adding" else "RedisBloom"
    titles = {title.replace("`SADD`", beside): of for title, of in contest.COLUMNS.items()}
    rows: list[list[Any]] = [
        [pair[0], share, *contest.cells(costs[share], *pair)] for pair in pairs for share in SHARES
    ]
    return Table(name, {"": "", "% seen": "d", **titles}, rows)
