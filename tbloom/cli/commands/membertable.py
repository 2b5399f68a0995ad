"""``tbloom count export``: the ids and members of a counter, as a table for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.cli.commands.counters import Counters
from tbloom.cli.kit import filters, interrupts, options, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.items import Item

if TYPE_CHECKING:
    from tbloom.distinct import MemberSet

Pairs = list[tuple[int, Item]]
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
    """Writes the ids and members of a counter, or of one slice, as a table.

    The mapping must keep its members (tbloom count add --keep-members); of a counter of integers, both columns are the same.
    """
    write = _WRITERS.get(Path(file).suffix, _csv)
    reporter = Reporter(stderr=True, quiet=quiet or file == "-")
    with filters.connect(url) as server, ExitStack() as stack:
        members = Counters(server, mapping).operand(name).members()
        pairs = _batches(members, stack.enter_context(reporter.count("Writing", None, "members")))
        first = next(pairs, [])  # an error comes before the file
        with streams.writing(file) as out:
            write(out, _chained(first, pairs))
    reporter.say(f"{file}: {name}")


def _batches(members: MemberSet, advance: Callable[[int], None]) -> Iterator[Pairs]:
    total, pairs = 0, iter(members.pairs())
    while True:
        with interrupts.step():
            batch = [*islice(pairs, _AT_ONCE)]
        if not batch:
            return
        yield batch
        total += len(batch)
        advance(total)


def _chained(first: Pairs, others: Iterator[Pairs]) -> Iterator[Pairs]:
    yield first
    yield from others


def _csv(out: BinaryIO, batches: Iterator[Pairs]) -> None:
    # Members that are not UTF-8 are written as the bytes that they are.
    text = io.TextIOWrapper(out, encoding="utf-8", errors="surrogateescape", newline="")
    table = csv.writer(text)
    table.writerow(_COLUMNS)
    for batch in batches:
        table.writerows(
            (id, member.decode(errors="surrogateescape") if isinstance(member, bytes) else member)
            for id, member in batch
        )
    text.detach()  # flushes; the file stays open


def _arrow(out: BinaryIO, batches: Iterator[Pairs]) -> None:
    pa = _pyarrow()
    _write(batches, lambda schema: pa.ipc.new_file(out, schema))


def _parquet(out: BinaryIO, batches: Iterator[Pairs]) -> None:
    _pyarrow()
    from pyarrow import parquet  # noqa: PLC0415 - it is optional

    _write(batches, lambda schema: parquet.ParquetWriter(out, schema))


def _write(batches: Iterator[Pairs], make: Callable[[Any], Any]) -> None:
    """Writes the rows by one of pyarrow's writers."""
    pa = _pyarrow()
    schema = pa.schema([("id", pa.uint32()), ("member", pa.string())])
    with make(schema) as writer:
        for batch in batches:
            for id, member in batch:
                if isinstance(member, bytes):
                    raise CommandError(
                        f"--members: member {member!r} (id {id}) is not UTF-8; only CSV can have it"
                    )
            columns = [[id for id, _ in batch], [str(member) for _, member in batch]]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - it is optional
    except ModuleNotFoundError:
        raise CommandError(
            "--members: this format needs pyarrow: pip install 'tbloom[arrow]'"
        ) from None
    return pa


_WRITERS = {".arrow": _arrow, ".feather": _arrow, ".parquet": _parquet}
