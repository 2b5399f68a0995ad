"""``tbloom count retention`` and ``funnel``: tables, JSON, and a page with a heat map."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from tbloom import distinct
from tbloom.cli.commands.counters import Counters
from tbloom.cli.kit import filters, options, output, streams
from tbloom.cli.kit.command import Command, at_most_one
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    from tbloom.distinct import Cohort, Retention

#: The columns that a phone has room for.
_MOST = 8
PERIODS = {"h": "hours", "d": "days", "w": "weeks", "m": "months"}


@click.command(cls=Command, example="tbloom count retention pages --days 14")
@click.argument("name", type=options.text_of)
@options.url
@options.mapping
@click.option("--within", type=int, metavar="N", help="the newest N slices only (all)")
@click.option(
    "--days", type=int, metavar="N", help="the same, for a counter with a slice for each day"
)
@options.as_json
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(),
    help="as a page with a heat map; -: standard output",
)
def retention(
    *,
    name: str,
    url: str,
    mapping: str,
    within: int | None,
    days: int | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Shows how many of a slice's new members came back later.

    A member is new in the first slice of the table that has it.
    """
    at_most_one(within=within, days=days)
    at_most_one(json=as_json, html=html)
    with filters.connect(url) as server:
        counter = Counters(server, mapping).open(name)
        if days is not None and counter.config.granularity != "d":
            raise CommandError(f"--days: {name!r} has no slice for each day (--within)")
        table = distinct.retention(counter, within if days is None else days)
    period = PERIODS.get(table.granularity, "slices")
    if html:
        from tbloom.cli.kit.html import page  # noqa: PLC0415 - other counts do without jinja2

        with streams.writing(html) as file:
            file.write(
                page(
                    "retention.html",
                    table=table,
                    server=server.place,
                    period=period,
                    percent=lambda count, whole: 100 * count / whole if whole else 0,
                    most=_MOST,
                )
            )
        if html != "-":
            Reporter(stderr=True).say(f"{html}: {name}")
        return
    output.show(dataclasses.asdict(table), lambda: _table(table), as_json=as_json)
    if not as_json:
        output.line(f"{period} later, % of them; +: so far, in the slice that is still running")


@click.command(cls=Command, example="tbloom count funnel found fetched stored")
@click.argument("names", metavar="NAME[@LABEL]...", nargs=-1, required=True, type=options.text_of)
@options.url
@options.mapping
@options.as_json
def funnel(names: tuple[str, ...], url: str, mapping: str, *, as_json: bool) -> None:
    """Shows how many members all counters up to each one have."""
    with filters.connect(url) as server:
        first, *others = map(Counters(server, mapping).operand, names)
        sizes = distinct.funnel(first, *others)
    steps = [{"name": name, "count": count} for name, count in zip(names, sizes, strict=True)]

    rows = [
        {
            "step": name,
            "members": f"{count:,}",
            "of the one before": _percent(count, before),
            "of the first": _percent(count, sizes[0]),
        }
        for name, count, before in zip(names, sizes, [sizes[0], *sizes], strict=False)
    ]
    output.show(steps, lambda: output.table(rows, left=("step",)), as_json=as_json)


def _table(table: Retention) -> str:
    later = [str(number) for number in range(1, len(table.cohorts))]
    rows = [
        {
            "new in": cohort.label,
            "members": f"{cohort.size:,}",
            **dict(zip_longest(later, _shares(cohort), fillvalue="")),
        }
        for cohort in table.cohorts
    ]
    return output.table(rows, left=("new in",), less=later[::-1])


def _shares(cohort: Cohort) -> list[str]:
    """The share of the cohort that each later slice has (%); +: the last one, so far."""
    shares = [f"{100 * count / cohort.size:.0f}" for count in cohort.returned if cohort.size]
    return [*shares[:-1], *(f"{last}+" for last in shares[-1:])]


def _percent(count: int, whole: int) -> str:
    return f"{100 * count / whole:.0f} %" if whole else ""
