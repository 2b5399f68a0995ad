"""An add beside SADD, by share of duplicates, on each kind of server."""

from __future__ import annotations

from itertools import product
from typing import Any

import redis
from contenders import (
    ADD,
    ADD_MANY,
    SADD,
    SADD_MANY,
    Contender,
    after_a_week,
    in_batches,
    one_by_one,
    scrapy_redis,
)
from exact import empty, others, version
from race import compared, run_rounds
from serving import placements
from streams import fingerprints

from tbloom.demo.localredis import LocalRedis

#: (%) With 0 all items are new, with 100 all are seen.
SHARES = 0, 50, 95, 100
#: What each is compared with.
REFERENCES = {ADD: SADD, SADD: SADD, ADD_MANY: SADD_MANY, SADD_MANY: SADD_MANY}


def adding(
    server: LocalRedis,
    client: redis.Redis,
    *,
    capacity: int,
    rounds: int,
    items: int,
    everywhere: bool,
) -> dict[str, Any]:
    """Figures of interleaved rounds, on the main server and ``everywhere`` else."""
    rows = measured(server, client, capacity, rounds, items)
    for other, its_client in others(version(client)) if everywhere else ():
        rows += measured(other, its_client, capacity, rounds, items)
    servers = [*dict.fromkeys(row["on"] for row in rows)]
    return {"rounds": rounds, "servers": servers, "rows": rows}


def measured(
    server: LocalRedis, client: redis.Redis, capacity: int, rounds: int, items: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with (
        after_a_week(server.url, client, "one", capacity) as one,
        after_a_week(server.url, client, "many", capacity) as many,
    ):
        everybody = [
            Contender(ADD, "`TimeBloom.add`", one_by_one(one.add)),
            Contender(ADD_MANY, "`TimeBloom.add_many`", in_batches(many.add_many)),
            *scrapy_redis(server.url, fingerprints("stock", capacity)),
        ]
        for placement, share in product(placements(), SHARES):
            where: Any = {"placement": placement, "duplicates": share}
            costs = run_rounds(
                server, client, everybody, rounds=rounds, items=items, group="adding", **where
            )
            rows += [
                {
                    "on": version(client),
                    **where,
                    "name": name,
                    **compared(own, costs[REFERENCES[name]]),
                }
                for name, own in costs.items()
            ]
    empty(client)
    return rows
