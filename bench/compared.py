"""The table of README.md and docs/comparison.md, from the tables of two sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.contest import ADD, ADD_MANY, BATCH, SADD, SADD_MANY, SET
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


def table(measured: Mapping[str, Table]) -> Table:
    """Return the speed and memory of each."""
    speed, memory = measured["race"], measured["footprint"]
    rows: list[list[Any]] = []
    for name, (one, many, held, forgets) in PEERS.items():
        rates = [way and speed.row(way)["items/s"] for way in (one, many)]
        rows.append([name, *rates, memory.row(held)["bytes per item"], forgets])
    columns = {"one by one, per second": ",.0f", f"{BATCH} a call, per second": ",.0f"}
    return Table("compared", {"": "", **columns, "bytes per URL": ".1f", "forgets": ""}, rows)
