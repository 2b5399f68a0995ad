"""Adds to a distant server, one by one, in batches and by 100 tasks, compared with SADD in the same ways."""

from __future__ import annotations

from typing import Any

from bench import contest
from bench.contenders import after_a_week, scrapy_redis
from bench.contest import ADD, ADD_MANY, SADD, SADD_MANY, Contender, in_batches, one_by_one
from bench.delay import delayed
from bench.serving import APART, Server
from bench.tables import Table
from bench.tasks import TASKS, by_tasks

#: Round trips (s). The proxy takes some 0.2 ms more.
DELAYS = 0.0002, 0.002
HUNDRED = f"{TASKS} 100"
REFERENCES = {ADD: SADD, ADD_MANY: SADD_MANY, HUNDRED: f"SADD by {HUNDRED}"}


def measure(
    server: Server, *, capacity: int = 200_000, rounds: int = 5, items: int = 2000
) -> list[Table]:
    """Return the medians of the rounds."""
    rows: dict[str, list[Any]] = {name: [name] for name in REFERENCES}
    columns = {"": ""}
    for delay in DELAYS:
        with (
            delayed(server.port, delay / 2) as url,
            after_a_week(server, "one", capacity, url) as one,
            after_a_week(server, "many", capacity, url) as many,
            by_tasks(server, url, capacity, 100) as tasks,
        ):
            ours = (
                Contender(ADD, one_by_one(one.add)),
                Contender(ADD_MANY, in_batches(many.add_many)),
            )
            everybody = [*ours, *scrapy_redis(server, url, capacity), *tasks]
            costs = contest.hold(server, everybody, rounds, items, places=[APART])
        for name, reference in REFERENCES.items():
            rows[name] += contest.rate_and_ratio(costs[APART, name], costs[APART, reference])
        columns |= {
            f"{1000 * delay:g} ms: items/s": ",.0f",
            f"{1000 * delay:g} ms: x `SADD`": ".2f",
        }
        server.empty()
    return [Table("away", columns, [*rows.values()])]
