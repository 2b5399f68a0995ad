"""``tbloom count retention`` and ``funnel``: tables, JSON, and a page with a heat map."""

from __future__ import annotations

import dataclasses
from importlib.resources import files as resources
from typing import TYPE_CHECKING

from tbloom.cli.commands.count import counters
from tbloom.cli.kit import filters, outfile, output
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.distinct import funnel, retention
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tbloom.distinct import Cohort, Retention

PERIODS = {"h": "hours", "d": "days", "w": "weeks", "m": "months"}


def add_arguments(
    verb: Callable[..., argparse.ArgumentParser],
    add_mapping: Callable[[argparse.ArgumentParser], None],
) -> None:
    """The two sub-commands."""
    parser = verb(
        "retention",
        "show how many of a slice's new members came back later",
        "tbloom count retention pages --days 14",
        " A member is new in the first slice of the table that has it.",
    )
    parser.add_argument("name", metavar="NAME", help="the name of a counter with slices")
    add_mapping(parser)
    newest = parser.add_mutually_exclusive_group()
    newest.add_argument("--within", type=int, metavar="N", help="the newest N slices only (all)")
    newest.add_argument(
        "--days", type=int, metavar="N", help="the same, for a counter with a slice for each day"
    )
    made = parser.add_mutually_exclusive_group()
    made.add_argument("--json", action="store_true", help="as JSON")
    made.add_argument(
        "--html", metavar="FILE", help="as a page with a heat map; -: standard output"
    )
    parser = verb(
        "funnel",
        "show how many members all counters up to each one have",
        "tbloom count funnel found fetched stored",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="a counter, or one slice of it as NAME@LABEL"
    )
    add_mapping(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run_retention(arguments: argparse.Namespace) -> int:
    """Shows the table."""
    url, within = arguments.url, arguments.within
    with filters.connect(url) as client:
        counter = counters.open_stored(url, client, arguments.mapping, arguments.name)
        if arguments.days is not None:
            within = arguments.days
            if counter.config.granularity != "d":
                raise CommandError(
                    f"--days: {arguments.name!r} has no slice for each day (--within)"
                )
        table = retention(counter, within)
    if arguments.json:
        output.print_json(dataclasses.asdict(table))
    elif arguments.html:
        with outfile.writing(arguments.html) as file:
            file.write(page(table, without_secrets(url)))
        if arguments.html != "-":
            Reporter(stderr=True).say(f"{arguments.html}: {arguments.name}")
    else:
        shown = output.columns("new in", right=("members", *map(str, range(1, len(table.cohorts)))))
        for cohort in table.cohorts:
            shown.add_row(cohort.label, f"{cohort.size:,}", *_shares(cohort))
        output.console().print(shown)
        output.line(f"{PERIODS.get(table.granularity, 'slices')} later, % of them")
    return 0


def run_funnel(arguments: argparse.Namespace) -> int:
    """Shows the steps."""
    url, mapping, names = arguments.url, arguments.mapping, arguments.names
    with filters.connect(url) as client:
        first, *others = (counters.open_operand(url, client, mapping, name) for name in names)
        sizes = funnel(first, *others)
    if arguments.json:
        steps = zip(names, sizes, strict=True)
        output.print_json([{"name": name, "count": count} for name, count in steps])
        return 0
    shown = output.columns("step", right=("members", "of the one before", "of the first"))
    for name, count, before in zip(names, sizes, [sizes[0], *sizes], strict=False):
        shown.add_row(name, f"{count:,}", _percent(count, before), _percent(count, sizes[0]))
    output.console().print(shown)
    return 0


def page(table: Retention, server: str) -> bytes:
    """The page, in UTF-8; ``server`` is a URL without a password."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - other counts do without

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"number": "{:,}".format, "share": _percent}
    text = resources("tbloom.cli").joinpath("commands", "count", "retention.html")
    template = environment.from_string(text.read_text(encoding="utf-8"))
    period = PERIODS.get(table.granularity, "slices")
    html = template.render(table=table, server=server, period=period, shade=_shade)
    return html.encode(errors="replace")


def _shares(cohort: Cohort) -> list[str]:
    """The share of the cohort that each later slice has (%)."""
    return [f"{100 * count / cohort.size:.0f}" if cohort.size else "" for count in cohort.returned]


def _percent(count: int, whole: int) -> str:
    return f"{100 * count / whole:.0f} %" if whole else ""


def _shade(count: int, whole: int) -> int:
    """How dark a cell is (0 to 100)."""
    return round(100 * count / whole) if whole else 0
