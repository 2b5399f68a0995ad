"""``tbloom count``: distinct members, counted exactly, and how many of them counters share."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from redis import ResponseError
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tbloom.cli.kit import counters, filters, interrupts, lines, nesting, show, words
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.cli.kit.progress import Reporter
from tbloom.distinct.config import PARAMETERS, CounterConfig, from_stored
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import RenderableType

    from tbloom.distinct import CounterInfo

#: What the user knows arguments by.
_SHOWN = {"name": "NAME", **{name: f"--{name}" for name in ("mapping", "within", *PARAMETERS)}}
_COMBINED = {
    "and": "print how many members all of the counters have in common",
    "or": "print how many members the counters have together",
    "xor": "print how many members an odd number of the counters have; of two, one and not the other",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands, each with its own."""
    parser.description = (
        f"{parser.description} Counters that share a mapping, which numbers the members, can be "
        "combined. One with slices forgets by itself what is older."
    )
    verb = nesting.verbs_of(parser, filters.add_url)
    _add_adding(verb)
    _add_showing(verb)
    for name, help in _COMBINED.items():
        _add_combining(verb, name, help)
    _add_listing(verb)
    _add_clearing(verb)


def run(arguments: argparse.Namespace) -> int:
    """Does what the verb says."""
    verb = {"add": _add, "show": _show, "list": _list, "clear": _clear}.get(
        arguments.verb, _combine
    )
    try:
        return verb(arguments)
    except ConfigError as error:
        known = _SHOWN.get(error.argument, error.argument)
        if error.value is None:
            raise CommandError(f"{known}: expected {error.expected}") from None
        raise ConfigError(known, error.value, error.expected) from None


def _add_adding(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "add",
        "count the lines of files, and print how many were not counted before",
        "tbloom count add redis://localhost urls urls.txt --granularity d --slices 7",
        " With slices, that is: in the current one.",
    )
    _add_name(parser, "the counter's name; one that is not there is made")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="a member in each line; - or none: standard input"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    group = parser.add_argument_group("a counter that is not there yet")
    group.add_argument(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (no slices)",
    )
    group.add_argument("--slices", type=int, metavar="N", help="how many slices are kept")
    group.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)")


def _add_showing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb("show", "show a counter", "tbloom count show redis://localhost urls")
    _add_name(parser, "the counter's name (tbloom count list URL)")
    parser.add_argument("--within", type=int, metavar="N", help="the newest N slices only (all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_combining(verb: Callable[..., argparse.ArgumentParser], name: str, help: str) -> None:
    slices = "urls@20261116 urls@20261117"
    parser = verb(name, help, f"tbloom count {name} redis://localhost {slices}")
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="a counter, or one slice of it: NAME@LABEL (a counter of exactly this name comes first)",
    )
    _add_mapping(parser)


def _add_listing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb("list", "show the counters on a server", "tbloom count list redis://localhost")
    parser.add_argument("--mapping", metavar="MAPPING", help="of this mapping only (all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_clearing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "clear",
        "forget what a counter has counted, or with --all a whole mapping",
        "tbloom count clear redis://localhost urls",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the counter's name")
    _add_mapping(parser)
    parser.add_argument(
        "--all", action="store_true", help="the mapping's counters, all of them, and its ids"
    )


def _add_name(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("name", metavar="NAME", help=help)
    _add_mapping(parser)


def _add_mapping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mapping",
        metavar="MAPPING",
        default="ids",
        help="the mapping that numbers the members (ids)",
    )


def _add(arguments: argparse.Namespace) -> int:
    given = {name: value for name in PARAMETERS if (value := getattr(arguments, name)) is not None}
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    total = first = 0
    with ExitStack() as stack:
        # Opened before anything is counted, so that a wrong name changes nothing.
        files = [lines.open_file(stack, file) for file in arguments.files or ["-"]]
        client = stack.enter_context(filters.connect(arguments.url))
        counter = counters.open_or_create(
            arguments.url, client, arguments.mapping, arguments.name, given
        )
        advance = stack.enter_context(reporter.count("Counting", None, "members"))
        for members in (members for file in files for members, _ in lines.pages(file)):
            with interrupts.step():
                first += sum(counter.add_many(members))
            total += len(members)
            advance(total)
    noun = "member" if total == 1 else "members"
    show.line(f"{total:,} {noun} read, {first:,} counted for the first time")
    return 0


def _combine(arguments: argparse.Namespace) -> int:
    url, mapping = arguments.url, arguments.mapping
    with filters.connect(url) as client:
        first, *others = (
            counters.open_operand(url, client, mapping, name) for name in arguments.names
        )
        number = getattr(first, f"count_{arguments.verb}")(*others)
    show.line(f"{number}")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    url, mapping, name = arguments.url, arguments.mapping, arguments.name
    if (name is None) is not arguments.all:
        raise CommandError("NAME: expected a counter's name, or --all and none")
    with filters.connect(url) as client:
        if name is None:
            counters.check_mapping(url, client, mapping)
            counter = counters.of_config(client, CounterConfig("any", mapping))
        else:
            counter = counters.open_stored(url, client, mapping, name)
        with interrupts.step():
            counter.clear(mapping=name is None)
    cleared = f"the mapping {mapping!r}" if name is None else f"the counter {name!r}"
    Reporter(stderr=True).say(f"Cleared {cleared}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    within = arguments.within
    with filters.connect(arguments.url) as client:
        counter = counters.open_stored(arguments.url, client, arguments.mapping, arguments.name)
        count = None if within is None else counter.count(within)
        info = counter.info()
    if count is not None:
        info = dataclasses.replace(info, count=count, slices=info.slices[-within:])
    if arguments.json:
        show.print_json({**dataclasses.asdict(info), "bytes": info.bytes})
    else:
        show.console().print(_shown(info))
    return 0


def _shown(info: CounterInfo) -> RenderableType:
    rows: list[RenderableType] = [
        Text(f"{info.name}: {info.count:,} distinct members, {words.size(info.bytes)}")
    ]
    if info.granularity is not None:
        rows += [Text(), _slices(info)]
    rows += [
        Text(),
        Text(
            f"mapping {info.mapping!r}: {info.members:,} members, {words.size(info.mapping_bytes)}"
        ),
        *(Text(f"warning: {sentence}", style="yellow") for sentence in info.warnings),
    ]
    return Group(*rows)


def _slices(info: CounterInfo) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="bold")
    table.add_column("slice", "window")
    table.add_column("count", f"{info.count:,}", justify="right")
    table.add_column("memory", words.size(info.bytes), justify="right")
    for slice in info.slices:
        table.add_row(slice.label, f"{slice.count:,}", words.size(slice.bytes))
    return table


def _list(arguments: argparse.Namespace) -> int:
    """1: one of them can't be read, which stderr says."""
    url, mapping = arguments.url, arguments.mapping
    with filters.connect(url) as client:
        if mapping is not None:
            counters.check_mapping(url, client, mapping)
        mappings = filters.mappings(client) if mapping is None else [mapping]
        told = [counted for each in mappings for counted in _counted(client, each)]
    found = [counted for counted in told if counted is not None]
    if arguments.json:
        show.print_json(found)
    elif not told:
        sys.stderr.write("no counters here\n")
    elif found:
        show.console().print(_listed(found))
    return 0 if len(found) == len(told) else 1


def _counted(client: Any, mapping: str) -> list[dict[str, Any] | None]:
    """The mapping's counters; None for what can't be read, which stderr is told."""
    try:
        stored = counters.stored_in(client, mapping)
    except ResponseError as error:  # somebody else's key, of another type
        sys.stderr.write(f"tbloom: {mapping}: {one_line(error)}\n")
        return [None]
    if not stored:
        sys.stderr.write(
            f"mapping {mapping!r} has ids, and no counters ('clear --all' forgets them)\n"
        )
    return [_count(client, mapping, name, parameters) for name, parameters in stored.items()]


def _count(client: Any, mapping: str, name: str, parameters: str) -> dict[str, Any] | None:
    try:
        config = from_stored(name, mapping, parameters)
        count = counters.of_config(client, config).count()
    except (TBloomError, ResponseError) as error:
        sys.stderr.write(f"tbloom: {name}: {one_line(error)}\n")
        return None
    return {"mapping": mapping, "name": name, **counters.parameters_of(config), "count": count}


def _listed(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("mapping", "counter", "window"):
        table.add_column(heading)
    table.add_column("count", justify="right")
    for one in found:
        window = f"{one['slices']} x {one['granularity']}" if one["slices"] else ""
        table.add_row(one["mapping"], one["name"], window, f"{one['count']:,}")
    return table
