"""Tables for readers in a hurry, each made from other tables: of crawls (README.md), and of single calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.contest import ADD, ADD_MANY, BATCH, SADD, SADD_MANY, SET
from bench.fleet import CLASS, DONE, SCHEDULED, SCRAPY_REDIS, SECONDS, WITH_QUEUE
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


#: The first cell of each way to crawl, and that of its row in the tables of the fleet.
CRAWLS = {
    SCRAPY_REDIS: SCRAPY_REDIS,
    _PLUGIN: _PLUGIN,
    f"tbloom as {CLASS}": CLASS + WITH_QUEUE,
    f"**tbloom, {SCHEDULED}**": SCHEDULED,
    f"**tbloom, {DONE}**": DONE,
}
#: Titles of columns in README.md, and in the table of the fleet.
_COSTS = {
    "server time per page (us)": "server time per page (us)",
    "pages/s that fill one Redis": "pages/s that fill one core",
    "calls per page": "calls per page",
    "bytes sent per page": "bytes sent per page",
}


def crawls(measured: Mapping[str, Table]) -> Table:
    """Return the costs of a page for each way to crawl. Without figures of a fleet, the table is empty."""
    costs, away = measured["fleet"], measured["fleet-away"]
    if not (costs.rows and away.rows):
        return Table("fleet-readme", {}, [])
    rows = [
        [name, *(costs.row(way)[title] for title in _COSTS.values()), away.row(way)["50 ms away"]]
        for name, way in CRAWLS.items()
    ]
    columns = {"": "", **{title: costs.columns[of] for title, of in _COSTS.items()}}
    columns[f"pages/s in the first {SECONDS} s, Redis 50 ms away"] = ",.1f"
    return Table("fleet-readme", columns, rows)


def calls(measured: Mapping[str, Table]) -> Table:
    """Return the speed and memory of each."""
    speed, memory = measured["race"], measured["footprint"]
    rows: list[list[Any]] = []
    for name, (one, many, held, forgets) in PEERS.items():
        rates = [way and speed.row(way)["items/s"] for way in (one, many)]
        rows.append([name, *rates, memory.row(held)["bytes per item"], forgets])
    columns = {"one by one, per second": ",.0f", f"{BATCH} a call, per second": ",.0f"}
    return Table("race-compared", {"": "", **columns, "bytes per URL": ".1f", "forgets": ""}, rows)
