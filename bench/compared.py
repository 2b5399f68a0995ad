"""Tables for readers in a hurry, each made from other tables: of crawls (README.md), and of single calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.contest import ADD, ADD_MANY, BATCH, SADD, SADD_MANY, SET
from bench.fleet import DONE
from bench.tables import Table

_PLUGIN, _ONE, _SEVEN = (
    "scrapy-redis-bloomfilter",
    "RedisBloom, one filter",
    "RedisBloom, 7 filters",
)
#: The rows of each in these tables (one by one, in batches, memory), and what it forgets.
PEERS = {
    "**tbloom**, 7 slices": (ADD, ADD_MANY, "tbloom, 7 slices", "by the slice"),
    "a set, as scrapy-redis has it": (SADD, SADD_MANY, SADD, "nothing"),
    "`SET NX EX`, a key per URL": (SET, None, SET, "each URL"),
    _PLUGIN: (_PLUGIN, None, _PLUGIN, "nothing"),
    _ONE: (_ONE, f"{_ONE}, by {BATCH}", _ONE, "nothing"),
    f"{_SEVEN}, your own script": (_SEVEN, f"{_SEVEN}, by {BATCH}", _SEVEN, "by the filter"),
}


#: Columns of the table of a fleet that README.md has, too.
_SHARED = (
    "time (s)",
    "pages of each",
    "calls per page",
    "server time per page (us)",
    "bytes per page",
)


def crawls(measured: Mapping[str, Table]) -> Table:
    """Return how fleets of eight share a crawl from one start page. Without figures, the table is empty."""
    sharing = measured["sharing"]
    if not sharing.rows:
        return Table("fleet-readme", {}, [])
    rows = [dict(zip(sharing.columns, row, strict=True)) for row in sharing.rows]
    [takes, way, *_] = sharing.columns
    return Table(
        "fleet-readme",
        {"": "", **{title: sharing.columns[title] for title in _SHARED}},
        [
            [f"**tbloom, {DONE}**" if row[way] == DONE else row[way], *(row[t] for t in _SHARED)]
            for row in rows
            if row["crawlers"] == 8 and row[takes] == rows[0][takes]
        ],
    )


def calls(measured: Mapping[str, Table]) -> Table:
    """Return the speed and memory of each."""
    speed, memory = measured["race"], measured["footprint"]
    rows: list[list[Any]] = []
    for name, (one, many, held, forgets) in PEERS.items():
        rates = [way and speed.row(way)["items/s"] for way in (one, many)]
        rows.append([name, *rates, memory.row(held)["bytes per item"], forgets])
    columns = {"one by one, per second": ",.0f", f"{BATCH} a call, per second": ",.0f"}
    return Table("race-compared", {"": "", **columns, "bytes per URL": ".1f", "forgets": ""}, rows)
