"""The bytes that a new item adds to the append-only file, and its cost for the server."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from bench import contenders, contest
from bench.contest import fingerprints
from bench.progress import shown
from bench.serving import Server, medians
from bench.tables import Table


def measure(
    server: Server, *, capacity: int = 200_000, rounds: int = 5, items: int = 2000
) -> list[Table]:
    """Return the medians of rounds of new items. Current slices, and other filters, are half full at first.

    Each replica gets the same bytes as the append-only file.
    """
    stock = fingerprints("stock", capacity // 2)
    with contenders.all_of(server, capacity, stock) as everybody:
        one, many, _, *peers = everybody
        for ours in one, many:
            ours.run(stock)
        _write_a_log(server)
        rows = [_row(server, each, rounds, items) for each in shown([one, many, *peers], "written")]
    server.client.config_set("appendonly", "no")
    server.empty()
    columns = {"": "", "bytes": ",.0f", "server time (us)": ".1f"}
    return [Table("written", columns, rows)]


def _row(server: Server, contender: contest.Contender, rounds: int, items: int) -> list[Any]:
    costs, sizes = [], []
    for number in range(rounds + 1):
        before = _log_size(server)
        cost, _ = server.measure(contender.run, fingerprints(f"{contender.name} {number}", items))
        if number:  # the first one warms up
            costs.append(cost)
            sizes.append((_log_size(server) - before) / items)
    return [contender.name, median(sizes), medians(costs).server]


def _write_a_log(server: Server) -> None:
    """Turn the append-only file on, and wait until it has what is stored."""
    server.client.config_set("auto-aof-rewrite-percentage", 0)
    server.client.config_set("appendonly", "yes")
    while any(
        server.client.info("persistence")[name]
        for name in ("aof_rewrite_scheduled", "aof_rewrite_in_progress")
    ):
        time.sleep(0.05)


def _log_size(server: Server) -> int:
    return int(server.client.info("persistence")["aof_current_size"])
