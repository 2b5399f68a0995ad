"""An add beside SADD and RedisBloom by share of duplicates, and where its time goes."""

from __future__ import annotations

from typing import Any

from bench import contenders, contest, steps
from bench.contenders import ADD, ADD_MANY, REDISBLOOM_MANY, SADD, SADD_MANY
from bench.serving import Server, medians, placements
from bench.tables import Table

#: (%) With 0 all items are new.
SHARES = 0, 50, 95
#: What each is compared with.
REFERENCES = {ADD: SADD, ADD_MANY: SADD_MANY}


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
    table: list[list[Any]] = [
        [name, share, *contest.cells(costs[share], name, reference)]
        for name, reference in REFERENCES.items()
        for share in SHARES
    ]
    tables = [Table("adding", {"": "", "% seen": "d", **contest.COLUMNS}, table)]
    if server.redisbloom:
        tables.append(_beside_redisbloom(costs))
    return [*tables, steps.table(server, capacity, rounds, items)]


def _beside_redisbloom(costs: dict[int, contest.Costs]) -> Table:
    """Batches: the rate with one core for both, and the processor time of client and server, which load hardly changes."""
    rows: list[list[Any]] = []
    for share, of_share in costs.items():
        both = [of_share[placements()[-1], name] for name in (ADD_MANY, REDISBLOOM_MANY)]
        spent = [each["client"] + each["server"] for each in map(medians, both)]
        rows.append([share, *contest.rate_and_ratio(*both), *spent])
    columns = {"% seen": "d", "items/s": ",.0f", "x RedisBloom": ".2f", "processor us": ".1f"}
    return Table("adding-redisbloom", {**columns, "RedisBloom's": ".1f"}, rows)
