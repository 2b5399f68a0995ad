"""``tbloom count retention``: a table, JSON, or a page with a heat map."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from tbloom import distinct
from tbloom.cli.commands.counters import Counters, of_mapping
from tbloom.cli.kit import options, output, streams
from tbloom.cli.kit.command import Command

if TYPE_CHECKING:
    from tbloom.distinct import Cohort, Retention

#: The columns that a phone has room for.
_MOST = 8
PERIODS = {"h": "hours", "d": "days", "w": "weeks", "m": "months"}


@click.command(cls=Command, example="tbloom count retention pages --within 14")
@click.argument("name", type=options.text_of)
@of_mapping
@options.within
@options.as_json
@click.option(
    "--html",
    type=click.Path(),
    metavar="FILE",
    help="as a page with a heat map; -: standard output",
)
def retention(counters: Counters, name: str, within: int | None, html: str | None) -> None:
    """Shows how many of a slice's new members came back later.

    A member is new in the first slice of the table that has it.
    """
    table = distinct.retention(counters.open(name), within)
    period = PERIODS.get(table.granularity, "slices")
    if html:
        from tbloom.cli.kit.html import page  # noqa: PLC0415 - other counts do without jinja2

        shown = page(
            "retention.html",
            table=table,
            server=counters.server.place,
            period=period,
            percent=lambda count, whole: 100 * count / whole if whole else 0,
            most=_MOST,
        )
        with streams.writing(html) as file:
            file.write(shown)
        return
    output.show(dataclasses.asdict(table), lambda: _table(table, period))


def _table(table: Retention, period: str) -> str:
    later = [str(number) for number in range(1, len(table.cohorts))]
    rows = [
        {
            "new in": cohort.label,
            "members": f"{cohort.size:,}",
            **dict(zip_longest(later, _shares(cohort), fillvalue="")),
        }
        for cohort in table.cohorts
    ]
    note = f"{period} later, % of them; +: so far, in the slice that is still running"
    return f"{output.table(rows, left=('new in',))}\n{note}"


def _shares(cohort: Cohort) -> list[str]:
    """The share of the cohort that each later slice has (%); +: the last one, so far."""
    shares = [f"{100 * count / cohort.size:.0f}" for count in cohort.returned if cohort.size]
    return [*shares[:-1], *(f"{last}+" for last in shares[-1:])]
