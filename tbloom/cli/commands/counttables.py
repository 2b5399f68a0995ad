"""``tbloom count retention`` and ``tbloom count export``: the members of a counter as tables."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import click

from tbloom.arguments import Item
from tbloom.cli.commands.counters import Counters, of_mapping
from tbloom.cli.kit import options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.distinct import Cohort, Retention
from tbloom.distinct import retention as cohorts_of

#: The columns that a phone has room for.
_MOST = 8
PERIODS = {"h": "hours", "d": "days", "w": "weeks", "m": "months"}
Pairs = Iterator[tuple[int, Item]]
#: The files that pyarrow writes.
_PYARROWS = {".arrow", ".parquet"}
#: The rows that are written together.
_AT_ONCE = 10_000


@click.command(cls=Command, example="tbloom count retention pages --within 14")
@click.argument("name", type=options.text_of)
@of_mapping
@options.within
@options.as_json
@click.option("--html", type=click.Path(), help="as a page with a heat map; -: standard output")
def retention(counters: Counters, name: str, within: int | None, html: str | None) -> None:
    """Shows how many of a slice's new members came back later.

    A member is new in the first slice of the table that has it.
    """
    table = cohorts_of(counters.open(name), within)
    period = PERIODS.get(table.granularity, "slices")
    if html:
        shown = output.page(
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


@click.command(cls=Command, example="tbloom count export pages --members pages.parquet")
@click.argument("name", metavar="NAME[@LABEL]", type=options.text_of)
@of_mapping
@click.option(
    "--members",
    "file",
    required=True,
    type=click.Path(),
    help="the table: .arrow or .parquet (pip install 'tbloom[arrow]'), else CSV; -: standard output, as CSV",
)
@options.quiet
def export(counters: Counters, name: str, file: str) -> None:
    """Writes ids and members of a counter, or a slice, as a table.

    The mapping must keep its members (tbloom count add --keep-members); of a counter of integers, both columns are the same.
    """
    suffix, pairs = Path(file).suffix, counters.operand(name).members().pairs()
    with streams.writing(file) as out:
        if suffix in _PYARROWS:
            _write(out, pairs, suffix)
        else:
            _write_csv(out, pairs)
    if file != "-":
        output.summary(f"{file}: {name}")


def _write_csv(out: BinaryIO, pairs: Pairs) -> None:
    # Members that are not UTF-8 are written as the bytes that they are.
    file = SimpleNamespace(write=lambda row: out.write(row.encode(errors="surrogateescape")))
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("id", "member"))
    for id, member in pairs:
        if isinstance(member, bytes):
            member = member.decode(errors="surrogateescape")  # noqa: PLW2901
        table.writerow((id, member))


def _write(out: BinaryIO, pairs: Pairs, suffix: str) -> None:
    """Writes the rows by one of pyarrow's writers."""
    import pyarrow as pa  # noqa: PLC0415 - it is optional
    from pyarrow import parquet  # noqa: PLC0415 - the same

    schema = pa.schema([("id", pa.uint32()), ("member", pa.string())])
    make = parquet.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file
    with make(out, schema) as writer:
        while batch := [*islice(pairs, _AT_ONCE)]:
            ids, members = zip(*batch, strict=True)
            if wrong := next((each for each in members if isinstance(each, bytes)), None):
                raise CommandError(f"--members: {wrong!r} is not UTF-8; only CSV can have it")
            columns = [[*ids], [*map(str, members)]]
            writer.write_batch(pa.record_batch(columns, schema=schema))
