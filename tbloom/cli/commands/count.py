"""``tbloom count``: exact counts of distinct members, and combinations of counters."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from redis import ResponseError

from tbloom.cli.commands.cohorts import funnel, retention
from tbloom.cli.commands.counters import PARAMETERS, Counters, instant_of
from tbloom.cli.commands.membertable import export
from tbloom.cli.kit import filters, formats, interrupts, options, output, streams
from tbloom.cli.kit.command import Group, confirm
from tbloom.cli.kit.errors import CommandError, print_error
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.flow import text
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Server
    from tbloom.distinct import CounterInfo


@click.group(cls=Group)
def command() -> None:
    """Counts distinct members exactly, and combines counters.

    Counters that share a mapping, which numbers the members, can be combined. A counter with slices forgets the members
    of expired slices.
    """


command.add_command(retention)
command.add_command(funnel)
command.add_command(export)
_name = click.argument("name", type=options.text_of)
_operands = click.argument(
    "names", metavar="NAME[@LABEL]...", nargs=-1, required=True, type=options.text_of
)


@command.command(example="tbloom count add urls urls.txt --granularity d --slices 7")
@_name
@options.files
@options.url
@options.mapping
@options.slices("counter", "no slices")
@click.option(
    "--at",
    metavar="TIME",
    type=options.text_of,
    help="the slice that they are counted in: a day or an instant in it (ISO 8601), or its label (the current one)",
)
@click.option(
    "--keep-members",
    is_flag=True,
    help="a new mapping keeps the members themselves, so that sets can be listed",
)
@options.as_json
@options.quiet
def add(
    name: str,
    files: tuple[str, ...],
    url: str,
    mapping: str,
    at: str | None,
    *,
    keep_members: bool,
    as_json: bool,
    quiet: bool,
    **parameters: Any,
) -> None:
    """Counts the lines of files, and prints the number of new members.

    A missing counter is created. An instant without an offset is one in the counter's time zone.
    """
    given = {key: value for key in PARAMETERS if (value := parameters[key]) is not None}
    reporter = Reporter(stderr=True, quiet=quiet)
    total = new = 0
    with ExitStack() as stack:
        opened = streams.open_files(stack, files)
        counters = Counters(stack.enter_context(filters.connect(url)), mapping)
        counter = counters.open_or_create(name, given, keep_members=keep_members)
        instant = None if at is None else instant_of(counter.config, at)
        advance = stack.enter_context(reporter.count("Counting", None, "members"))
        for members in (members for file in opened for members, _ in streams.batches(file)):
            with interrupts.step():
                new += sum(counter.add_many(members, instant))
            total += len(members)
            advance(total)
    if as_json:
        output.print_json({"read": total, "new": new})
    else:
        read = formats.counted(total, "member")
        output.line(f"{read} read, {new:,} counted for the first time")


@command.command(example="tbloom count show urls")
@_name
@options.url
@options.mapping
@click.option("--within", type=int, metavar="N", help="the newest N slices only (all)")
@options.as_json
def show(name: str, url: str, mapping: str, within: int | None, *, as_json: bool) -> None:
    """Shows a counter."""
    with filters.connect(url) as server:
        counter = Counters(server, mapping).open(name)
        count = None if within is None else counter.count(within)
        info = counter.info()
    if count is not None and within is not None:
        info = dataclasses.replace(info, count=count, slices=info.slices[-within:])
    found = {**dataclasses.asdict(info), "bytes": info.bytes}
    output.show(found, lambda: _text(info), as_json=as_json)


def _combine(verb: str, example: str, help: str) -> Callable[..., None]:
    """The command that prints the number of members of a combination."""

    @command.command(verb, example=f"tbloom count {verb} {example}", help=help)
    @_operands
    @options.url
    @options.mapping
    @options.as_json
    def combine(names: tuple[str, ...], url: str, mapping: str, *, as_json: bool) -> None:
        with filters.connect(url) as server:
            counters = Counters(server, mapping)
            first, *others = map(counters.operand, names)
            number = getattr(first, f"count_{verb}")(*others)
        output.show({"count": number}, lambda: f"{number}", as_json=as_json)

    return combine


_SLICES = "urls@20261116 urls@20261117"
_combine("and", _SLICES, "Prints the number of members that all counters have.")
_combine("or", _SLICES, "Prints the number of members that any of the counters has.")
_combine(
    "xor",
    _SLICES,
    "Prints the number of members that an odd number of counters has; with two, exactly one.",
)
_combine(
    "andnot",
    _SLICES,
    "Prints the number of members that the first counter has, and none of the others.",
)


@command.command("list", example="tbloom count list")
@options.url
@click.option("--mapping", metavar="MAPPING", help="counters of this mapping only (all)")
@options.as_json
def list_counters(url: str, mapping: str | None, *, as_json: bool) -> int:
    """Shows the counters on a server.

    Exit code 1: a counter can't be read.
    """
    with filters.connect(url) as server:
        if mapping is not None:
            Counters(server, mapping).check()
        mappings = server.names(*filters.COUNTERS) if mapping is None else [mapping]
        found = [count for each in mappings for count in _counts(server, each)]
    return output.show_list(found, dict, _listed, as_json=as_json, empty="no counters here")


@command.command(example="tbloom count clear urls --yes")
@click.argument("name", required=False, type=options.text_of)
@options.url
@options.mapping
@click.option("--all", "everything", is_flag=True, help="all counters of the mapping, and its ids")
@options.yes
def clear(name: str | None, url: str, mapping: str, *, everything: bool, yes: bool) -> None:
    """Clears a counter, or with --all a whole mapping."""
    if (name is None) is not everything:
        raise CommandError("NAME: expected either a counter's name or --all")
    with filters.connect(url) as server:
        counters = Counters(server, mapping)
        if name is None:
            counters.check()
            counter = counters.counter(mapping.strip("{}"))  # any name; of integers, theirs
        else:
            counter = counters.open(name)
        cleared = f"the mapping {mapping!r}" if name is None else f"the counter {name!r}"
        confirm(f"Clear {cleared} on {server.place}?", "nothing was deleted", yes=yes)
        with interrupts.step():
            counter.clear(mapping=name is None)
    Reporter(stderr=True).say(f"Cleared {cleared}")


def _text(info: CounterInfo) -> str:
    count, members = (formats.counted(number, "member") for number in (info.count, info.members))
    distinct = count.replace(" ", " distinct ")
    lines = [output.sentence(f"{info.name}: {distinct}, {formats.size(info.bytes)}")]
    if info.granularity is not None:
        lines += ["", _slices(info)]
    if info.mapping is not None:
        taken = formats.size(info.mapping_bytes)
        lines += ["", output.sentence(f"mapping {info.mapping!r}: {members}, {taken}")]
    return "\n".join([*lines, *output.warnings(info.warnings)])


def _slices(info: CounterInfo) -> str:
    def row(label: str, count: int, size: int) -> dict[str, str]:
        return {"slice": label, "count": f"{count:,}", "memory": formats.size(size)}

    rows = [row(slice.label, slice.count, slice.bytes) for slice in info.slices]
    return output.table(rows, left=("slice",), totals=row("window", info.count, info.bytes))


def _counts(server: Server, mapping: str) -> list[dict[str, Any] | None]:
    """The mapping's counters; None for each that can't be read, after its error on stderr."""
    counters = Counters(server, mapping)
    try:
        entries = counters.entries()
    except ResponseError as error:  # the key belongs to another program
        print_error(mapping, error)
        return [None]
    if not entries:
        sys.stderr.write(
            f"mapping {mapping!r} has ids, but no counters ('clear --all' deletes them)\n"
        )
    return [_count(counters, name, entry) for name, entry in entries.items()]


def _count(counters: Counters, name: bytes, entry: str) -> dict[str, Any] | None:
    try:
        counter = counters.of_entry(name, entry)
        count = counter.count()
    except (TBloomError, ResponseError) as error:
        print_error(text(name), error)
        return None
    parameters = {key: getattr(counter.config, key) for key in PARAMETERS}
    return {"mapping": counter.mapping, "name": counter.name, **parameters, "count": count}


def _listed(found: list[dict[str, Any]]) -> str:
    rows = [
        {
            "mapping": one["mapping"] or "(integers)",
            "counter": one["name"],
            "window": f"{one['slices']} x {one['granularity']}" if one["slices"] else "",
            "count": f"{one['count']:,}",
        }
        for one in found
    ]
    return output.table(rows, left=("mapping", "counter", "window"))
