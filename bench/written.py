"""What a new item sends to the append-only file, and to each replica, and what it costs the server."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from bench import contenders, contest
from bench.contenders import ADD, ADD_MANY, after_a_week
from bench.contest import fingerprints
from bench.serving import Server, medians
from bench.tables import Table

COLUMNS = {"": "", "bytes": ",.0f", "commands us": ".1f", "server us": ".1f"}


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """Medians of rounds of new items; the current slices, and the filters of others, are half full.

    A replica gets what the append-only file gets.
    """
    stock = fingerprints("stock", capacity // 2)
    with (
        after_a_week(server, "one", capacity) as one,
        after_a_week(server, "many", capacity) as many,
    ):
        for seen in one, many:
            seen.add_many(stock)
        everybody = [
            contest.Contender(ADD, contest.one_by_one(one.add)),
            contest.Contender(ADD_MANY, contest.in_batches(many.add_many)),
            *contenders.scrapy_redis(server.url, stock),
            contenders.set_nx_ex(server.url, stock),
            contenders.scrapy_redis_bloomfilter(server.url),
            *(contenders.redisbloom(server.url, capacity, stock) if server.redisbloom else ()),
        ]
        _write_a_log(server)
        rows = [_row(server, contender, rounds, items) for contender in everybody]
    server.client.config_set("appendonly", "no")
    server.empty()
    return [Table("written", COLUMNS, rows)]


def _row(server: Server, contender: contest.Contender, rounds: int, items: int) -> list[Any]:
    costs, sizes = [], []
    for number in range(rounds + 1):
        before = _log_size(server)
        cost, _ = server.measure(contender.run, fingerprints(f"{contender.name} {number}", items))
        if number:  # the first one warms up
            costs.append(cost)
            sizes.append((_log_size(server) - before) / items)
    spent = medians(costs)
    return [contender.name, median(sizes), spent["commands"], spent["server"]]


def _write_a_log(server: Server) -> None:
    """Turns the append-only file on, and waits until it has what is stored."""
    server.client.config_set("auto-aof-rewrite-percentage", 0)
    server.client.config_set("appendonly", "yes")
    while any(
        server.client.info("persistence")[name]
        for name in ("aof_rewrite_scheduled", "aof_rewrite_in_progress")
    ):
        time.sleep(0.05)


def _log_size(server: Server) -> int:
    return int(server.client.info("persistence")["aof_current_size"])
