"""``tbloom count export``: the ids and members of a counter, as a table for other programs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import click

from tbloom.cli.commands.counters import Counters
from tbloom.cli.kit import filters, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.items import Item

Pairs = Iterator[tuple[int, Item]]
_COLUMNS = ("id", "member")
#: The rows that are written together.
_AT_ONCE = 10_000


@click.command(cls=Command, example="tbloom count export pages --members pages.parquet")
@click.argument("name", metavar="NAME[@LABEL]", type=options.text_of)
@options.url
@options.mapping
@click.option(
    "--members",
    "file",
    metavar="FILE",
    required=True,
    type=click.Path(),
    help="the table: .arrow or .parquet (pip install 'tbloom[arrow]'), else CSV; -: standard output, as CSV",
)
@options.quiet
def export(name: str, url: str, mapping: str, file: str, *, quiet: bool) -> None:
    """Writes ids and members of a counter, or a slice, as a table.

    The mapping must keep its members (tbloom count add --keep-members); of a counter of integers, both columns are the same.
    """
    with filters.connect(url) as server:
        members = Counters(server, mapping).operand(name).members()
        with streams.writing(file) as out:
            _WRITERS.get(Path(file).suffix, _csv)(out, iter(members.pairs()))
    output.say(f"{file}: {name}", quiet=quiet or file == "-")


def _csv(out: BinaryIO, pairs: Pairs) -> None:
    # Members that are not UTF-8 are written as the bytes that they are.
    file = SimpleNamespace(write=lambda row: out.write(row.encode(errors="surrogateescape")))
    table = csv.writer(file, lineterminator="\n")
    table.writerow(_COLUMNS)
    for id, member in pairs:
        if isinstance(member, bytes):
            member = member.decode(errors="surrogateescape")  # noqa: PLW2901
        table.writerow((id, member))


def _arrow(out: BinaryIO, pairs: Pairs) -> None:
    pa = _pyarrow()
    _write(pairs, lambda schema: pa.ipc.new_file(out, schema))


def _parquet(out: BinaryIO, pairs: Pairs) -> None:
    _pyarrow()
    from pyarrow import parquet  # noqa: PLC0415 - it is optional

    _write(pairs, lambda schema: parquet.ParquetWriter(out, schema))


def _write(pairs: Pairs, make: Callable[[Any], Any]) -> None:
    """Writes the rows by one of pyarrow's writers."""
    pa = _pyarrow()
    schema = pa.schema([("id", pa.uint32()), ("member", pa.string())])
    with make(schema) as writer:
        while batch := [*islice(pairs, _AT_ONCE)]:
            ids, members = zip(*batch, strict=True)
            if wrong := next((each for each in members if isinstance(each, bytes)), None):
                raise CommandError(f"--members: {wrong!r} is not UTF-8; only CSV can have it")
            columns = [[*ids], [*map(str, members)]]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - it is optional
    except ModuleNotFoundError:
        raise CommandError(
            "--members: this format needs pyarrow: pip install 'tbloom[arrow]'"
        ) from None
    return pa


_WRITERS = {".arrow": _arrow, ".parquet": _parquet}
