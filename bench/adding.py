"""An add beside SADD by share of duplicates, and where its time goes."""

from __future__ import annotations

from typing import Any

from bench import contenders, contest, steps
from bench.serving import Server
from bench.tables import Table

#: (%) With 0 all items are new.
SHARES = 0, 50, 95
#: What each is compared with.
REFERENCES = {contenders.ADD: contenders.SADD, contenders.ADD_MANY: contenders.SADD_MANY}


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """Figures of interleaved rounds."""
    rows: dict[str, list[list[Any]]] = {name: [] for name in REFERENCES}
    with (
        contenders.after_a_week(server, "one", capacity) as one,
        contenders.after_a_week(server, "many", capacity) as many,
    ):
        everybody = [
            contest.Contender(contenders.ADD, contest.one_by_one(one.add)),
            contest.Contender(contenders.ADD_MANY, contest.in_batches(many.add_many)),
            *contenders.scrapy_redis(server.url, contest.fingerprints("stock", capacity)),
        ]
        for share in SHARES:
            costs = contest.hold(server, everybody, rounds=rounds, items=items, duplicates=share)
            for name, reference in REFERENCES.items():
                rows[name].append([name, share, *contest.cells(costs, name, reference)])
    server.empty()
    columns = {"": "", "% seen": "d", **contest.COLUMNS}
    table = Table("adding", columns, [row for of_way in rows.values() for row in of_way])
    return [table, steps.table(server, capacity, rounds, items)]
