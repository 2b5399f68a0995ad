"""Soaks "done": crawlers that share a site, and are killed with their server (tests/scrapy/soak.py)."""

from __future__ import annotations

import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING

from bench.tables import Table
from tests.scrapy.soak import KILLED, SERVER_KILLED, SERVER_STANDS, STOPPED, Played, soak

if TYPE_CHECKING:
    from bench.serving import Server


def measure(_: Server, *, minutes: float = 10, crawlers: int = 20) -> list[Table]:
    """Return what happened in each round. The soak has a server of its own."""
    rounds = soak(minutes, crawlers, secrets.token_hex(4), partial(print, file=sys.stderr))
    return [table(rounds)]


def table(rounds: list[Played]) -> Table:
    """Return a row for each round, and one for all."""
    columns = {
        "round": "",
        "crawlers killed": ",d",
        "crawlers stopped": ",d",
        "server killed": ",d",
        "server stood still": ",d",
        "pages": ",d",
        "stored again": ",d",
        "wrong": ",d",
    }
    faults = KILLED, STOPPED, SERVER_KILLED, SERVER_STANDS
    rows = [
        [
            *(played.faults[what] for what in faults),
            played.pages,
            played.stored - played.pages,
            len(played.wrong),
        ]
        for played in rounds
    ]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    named = [[str(number), *row] for number, row in enumerate(rows, 1)]
    return Table("soak", columns, [*named, ["all", *sums]])
