"""All contenders on one server with the same items, half of them seen before."""

from __future__ import annotations

from bench import contest
from bench.contenders import SADD, everybody
from bench.serving import Server
from bench.tables import Table


def measure(server: Server, *, capacity: int, rounds: int, items: int) -> list[Table]:
    """The figures of all contenders: medians of the rounds."""
    with everybody(server, capacity) as contenders:
        costs = contest.hold(server, contenders, rounds=rounds, items=items)
    server.empty()
    rows = [[each.name, *contest.cells(costs, each.name, SADD)] for each in contenders]
    return [Table("race", {"": "", **contest.COLUMNS}, rows)]
