"""The table with which the page opens: tbloom and what users choose today."""

from __future__ import annotations

from typing import Any, NamedTuple

from contenders import ADD, ADD_MANY, REDISBLOOM_SLICES_MANY, SADD, SADD_MANY
from streams import BATCH
from table import Table


class Peer(NamedTuple):
    """Its names in the race, one by one and in batches, and in the footprint."""

    one: str
    many: str
    footprint: str
    label: str
    #: Of several clients that ask for an item at once, one gets "new".
    new_once: str
    forgets: str


PEERS = [
    Peer(ADD, ADD_MANY, "tbloom, 7 slices", "**tbloom**", "yes", "by slice"),
    Peer(SADD, SADD_MANY, SADD, "scrapy-redis: `SADD`", "yes", "no"),
    *(
        Peer(name, "", name, label, new_once, forgets)
        for name, label, new_once, forgets in (
            ("SET NX EX, a key each", "`SET NX EX`, a key each", "yes", "each item"),
            ("scrapy-redis-bloomfilter", "scrapy-redis-bloomfilter", "no", "no"),
            ("pottery", "pottery", "no", "no"),
            ("walrus", "walrus", "no", "no"),
        )
    ),
    Peer(
        "RedisBloom, one filter",
        f"RedisBloom, one filter, by {BATCH}",
        "RedisBloom, one filter",
        "RedisBloom, one filter",
        "yes",
        "no",
    ),
    Peer(
        "RedisBloom, 7 filters",
        REDISBLOOM_SLICES_MANY,
        "RedisBloom, 7 filters",
        "RedisBloom, 7 filters and a script of one's own",
        "yes",
        "by slice",
    ),
]


def table(found: dict[str, Any]) -> Table:
    """What was measured of each, with a core each for client and server."""
    placement = found["race"]["rows"][0]["placement"]
    race = {row["name"]: row for row in found["race"]["rows"] if row["placement"] == placement}
    sizes = {row["name"]: row for row in found["footprint"]["rows"]}
    rows = [
        [
            peer.label,
            _rate(race[peer.one]),
            _rate(race.get(peer.many)),
            f"{sizes[peer.footprint]['bytes']:.1f}",
            _mistakes(sizes[peer.footprint]),
            peer.new_once,
            peer.forgets,
        ]
        for peer in PEERS
        if peer.one in race
    ]
    header = ["", "items/s", f"by {BATCH}", "bytes", "mistakes", "new once", "forgets"]
    return Table("tbloom and its peers", header, rows)


def _rate(row: dict[str, Any] | None) -> str:
    return f"{1e6 / row['elapsed']:,.0f}" if row else ""


def _mistakes(row: dict[str, Any]) -> str:
    return f"{row['mistakes'] / row['asked']:.1e}" if row["asked"] else "none"
