"""Single calls and batches: all contenders on one server, with the same items, half of them seen before.

Some are also called with few items, as in a crawl, and on the Valkey of a wheel, too.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from bench import changed, contenders, contest
from bench.contenders import A_SET, DAYS, HSETEX, TIME_BLOOM
from bench.contest import SADD, Contender, fingerprints
from bench.serving import Server, medians
from bench.tables import Table

#: Items a call: one, the links of a page, and the links of several pages.
SIZES = 1, 50, 500


def measure(
    server: Server,
    *,
    capacity: int = 1_000_000,
    rounds: int = 5,
    items: int = 2000,
    batches: int = 200_000,
) -> list[Table]:
    """Return the medians of the rounds. Each contender has ``capacity`` items on its server already, tbloom in each older slice.

    With batches of several sizes, it has ``batches`` items.
    """
    with contenders.all_of(server, capacity, fingerprints("stock", capacity)) as everybody:
        costs = contest.hold(server, everybody, rounds, items)
        logged = _logged(server, everybody, items)
    server.empty()
    rows = [
        [each.name, *contest.cells(costs, each.name, SADD), logged[each.name]] for each in everybody
    ]
    columns = {"": "", **contest.COLUMNS, "bytes logged": ",.0f"}
    return [
        Table("calls", columns, rows),
        _by_sizes(server, batches, rounds, items),
        changed.measure(server, pages=batches, rounds=rounds),
    ]


def _by_sizes(server: Server, capacity: int, rounds: int, items: int) -> Table:
    """Measure an item's costs by the number of items a call. *x* compares with pipelines of as many SADDs."""
    names = [TIME_BLOOM, contenders.EXACT, A_SET, DAYS, HSETEX]
    rows: list[list[Any]] = [[name, size] for name in names for size in SIZES]
    columns = {"": "", "items a call": "d"}
    with contenders.with_valkey(server) as servers:
        for version, each in servers.items():
            costs = _costs_by_sizes(each, capacity, rounds, items)
            for row in rows:
                name, size = row[:2]
                of = costs.get(f"{name} {size}")
                sadd = costs[f"{A_SET} {size}"]
                row.extend(
                    [contest.ratio_and_rate(of, sadd)[0], medians(of).server] if of else [None] * 2
                )
            columns |= {f"{version}: x `SADD`": ".2f", f"{version}: server time (us)": ".1f"}
    return Table("calls-batches", columns, rows)


def _costs_by_sizes(server: Server, capacity: int, rounds: int, items: int) -> contest.Costs:
    with ExitStack() as stack:
        opened = [contenders.by_batches(server, capacity, size) for size in SIZES]
        everybody = [each for size in opened for each in stack.enter_context(size)]
        costs = contest.hold(server, everybody, rounds, items)
    server.empty()
    return costs


def _logged(server: Server, everybody: list[Contender], items: int) -> dict[str, float]:
    """Return the bytes that a new item of each adds to the append-only file, and sends to each replica."""
    server.client.config_set("auto-aof-rewrite-percentage", 0)
    server.client.config_set("appendonly", "yes")
    while any(
        server.client.info("persistence")[name]
        for name in ("aof_rewrite_scheduled", "aof_rewrite_in_progress")
    ):
        time.sleep(0.05)
    sizes = {}
    for contender in everybody:
        before = _log_size(server)
        contender.run(fingerprints(f"logged {contender.name}", items))
        sizes[contender.name] = (_log_size(server) - before) / items
    server.client.config_set("appendonly", "no")
    return sizes


def _log_size(server: Server) -> int:
    return int(server.client.info("persistence")["aof_current_size"])
