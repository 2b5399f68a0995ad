"""Races all contenders on one server, with the same items, half of them seen before; tbloom and a set also with other shares.

Some race with few items a call too, as in a crawl: also on the Valkey of a wheel.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench import contenders, contest
from bench.contenders import A_SET, DAYS, HSETEX, TIME_BLOOM
from bench.contest import ADD, ADD_MANY, SADD, SADD_MANY
from bench.serving import Server, medians
from bench.tables import Table

#: Shares of items that were seen before (%).
HALF, SHARES = 50, (0, 50, 95)
#: What is measured with all shares, and what each is compared with.
REFERENCES = {ADD: SADD, ADD_MANY: SADD_MANY}
#: Items a call: one, the links of a page, and the links of several pages.
SIZES = 1, 50, 500


def measure(
    server: Server,
    *,
    capacity: int = 1_000_000,
    rounds: int = 9,
    items: int = 2000,
    batches: int = 200_000,
) -> list[Table]:
    """Return the medians of the rounds. Each contender has ``capacity`` items on its server already, tbloom in each older slice.

    With batches of several sizes, it has ``batches`` items.
    """
    stock = contest.fingerprints("stock", capacity)
    costs: dict[int, contest.Costs] = {}
    with contenders.all_of(server, capacity, stock) as everybody:
        some = [each for each in everybody if each.name in {*REFERENCES, *REFERENCES.values()}]
        for share in SHARES:
            these = everybody if share == HALF else some
            costs[share] = contest.hold(server, these, rounds, items, duplicates=share)
    server.empty()
    rows = [[each.name, *contest.cells(costs[HALF], each.name, SADD)] for each in everybody]
    seen: list[list[Any]] = [
        [name, share, *contest.cells(costs[share], name, reference)]
        for name, reference in REFERENCES.items()
        for share in SHARES
    ]
    return [
        Table("race", {"": "", **contest.COLUMNS}, rows),
        Table("race-seen", {"": "", "% seen": "d", **contest.COLUMNS}, seen),
        _by_sizes(server, batches, rounds, items),
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
                    [contest.rate_and_ratio(of, sadd)[1], medians(of).server] if of else [None] * 2
                )
            columns |= {f"{version}: x `SADD`": ".2f", f"{version}: server time (us)": ".1f"}
    return Table("race-batches", columns, rows)


def _costs_by_sizes(server: Server, capacity: int, rounds: int, items: int) -> contest.Costs:
    with ExitStack() as stack:
        opened = [contenders.by_batches(server, capacity, size) for size in SIZES]
        everybody = [each for size in opened for each in stack.enter_context(size)]
        costs = contest.hold(server, everybody, rounds, items)
    server.empty()
    return costs
