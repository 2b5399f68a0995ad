"""All contenders on one server with the same items, half of them seen before; and tbloom and a set by other shares."""

from __future__ import annotations

from typing import Any

from bench import contenders, contest
from bench.contest import ADD, ADD_MANY, SADD, SADD_MANY
from bench.serving import Server
from bench.tables import Table
from tbloom.exact import ExactFilter

#: Of items that were seen before (%).
HALF, SHARES = 50, (0, 50, 95)
#: What is measured by shares, and what each is compared with.
REFERENCES = {ADD: SADD, ADD_MANY: SADD_MANY}
EXACT = {f"`ExactFilter`: {ADD}": SADD, f"`ExactFilter`: {ADD_MANY}": SADD_MANY}


def measure(
    server: Server, *, capacity: int = 1_000_000, rounds: int = 9, items: int = 2000
) -> list[Table]:
    """Medians of the rounds, each contender with ``capacity`` items on its server already (tbloom in each of its slices)."""
    stock = contest.fingerprints("stock", capacity)
    costs: dict[int, contest.Costs] = {}
    with (
        contenders.all_of(server, capacity, stock) as everybody,
        ExactFilter.from_url(server.url, "exact one") as one,
        ExactFilter.from_url(server.url, "exact many") as many,
    ):
        adds = contest.one_by_one(one.add), contest.in_batches(many.add_many)
        for exact in (one, many):
            contest.in_batches(exact.add_many)(stock)
        ours = [contest.Contender(name, add) for name, add in zip(EXACT, adds, strict=True)]
        some = [each for each in everybody if each.name in {*REFERENCES, *REFERENCES.values()}]
        for share in SHARES:
            these = [*ours, *(everybody if share == HALF else some)]
            costs[share] = contest.hold(server, these, rounds, items, duplicates=share)
    server.empty()
    rows = [[each.name, *contest.cells(costs[HALF], each.name, SADD)] for each in everybody]
    tables = [Table("race", {"": "", **contest.COLUMNS}, rows)]
    for title, references in {"race-seen": REFERENCES, "race-exact": EXACT}.items():
        seen: list[list[Any]] = [
            [name, share, *contest.cells(costs[share], name, reference)]
            for name, reference in references.items()
            for share in SHARES
        ]
        tables.append(Table(title, {"": "", "% seen": "d", **contest.COLUMNS}, seen))
    return tables
