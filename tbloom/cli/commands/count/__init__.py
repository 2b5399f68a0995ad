"""``tbloom count``: exact counts of distinct members, and combinations of counters."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from redis import ResponseError
from rich.console import Group
from rich.styled import Styled

from tbloom.cli.commands.count import cohorts, counters
from tbloom.cli.kit import asking, filters, formats, interrupts, lines, output, subcommands
from tbloom.cli.kit.errors import CommandError, print_error
from tbloom.cli.kit.progress import Reporter
from tbloom.distinct.config import PARAMETERS, CounterConfig
from tbloom.engine.flow import text
from tbloom.engine.urls import without_secrets
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import RenderableType
    from rich.table import Table

    from tbloom.distinct import CounterInfo

#: The arguments, by the names of their parameters.
_SHOWN = {"name": "NAME", **{name: f"--{name}" for name in ("mapping", "within", *PARAMETERS)}}
_COMBINED = {
    "and": "print the number of members that all counters have",
    "or": "print the number of members that any of the counters has",
    "xor": "print the number of members that an odd number of counters has; with two, exactly one",
    "andnot": "print the number of members that the first counter has, and none of the others",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands, with their arguments."""
    parser.description = (
        f"{parser.description} Counters that share a mapping, which numbers the members, can be "
        "combined. A counter with slices forgets the members of expired slices."
    )
    verb = subcommands.adder(parser, filters.add_url)
    _add_adding(verb)
    _add_showing(verb)
    for name, help in _COMBINED.items():
        _add_combining(verb, name, help)
    cohorts.add_arguments(verb, _add_mapping)
    _add_listing(verb)
    _add_clearing(verb)


def run(arguments: argparse.Namespace) -> int:
    """Runs a sub-command."""
    verbs = {
        "add": _add,
        "show": _show,
        "retention": cohorts.run_retention,
        "funnel": cohorts.run_funnel,
        "list": _list,
        "clear": _clear,
    }
    return subcommands.run(verbs.get(arguments.verb, _combine), arguments, _SHOWN)


def _add_adding(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "add",
        "count the lines of files, and print the number of new members",
        "tbloom count add urls urls.txt --granularity d --slices 7",
        " In a counter with slices, they go into the current one.",
    )
    _add_name(parser, "the counter's name; a missing counter is created")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="a member in each line; - or none: standard input"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    subcommands.add_slices(parser, "counter", "no slices")
    parser.add_argument(
        "--keep-members",
        action="store_true",
        help="a new mapping keeps the members themselves, so that sets can be listed",
    )


def _add_showing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb("show", "show a counter", "tbloom count show urls")
    _add_name(parser, "the counter's name (tbloom count list)")
    parser.add_argument("--within", type=int, metavar="N", help="the newest N slices only (all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_combining(verb: Callable[..., argparse.ArgumentParser], name: str, help: str) -> None:
    slices = "urls@20261116 urls@20261117"
    parser = verb(name, help, f"tbloom count {name} {slices}")
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        help="a counter, or one slice of it as NAME@LABEL (unless a counter has exactly this name)",
    )
    _add_mapping(parser)


def _add_listing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb("list", "show the counters on a server", "tbloom count list")
    parser.add_argument("--mapping", metavar="MAPPING", help="counters of this mapping only (all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_clearing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "clear",
        "clear a counter, or with --all a whole mapping",
        "tbloom count clear urls --yes",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the counter's name")
    _add_mapping(parser)
    parser.add_argument(
        "--all", action="store_true", help="clear all counters of the mapping, and its ids"
    )
    asking.add_arguments(parser)


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
    total = new = 0
    with ExitStack() as stack:
        # Files are opened first, so that a wrong name changes nothing.
        files = [lines.open_file(stack, file) for file in arguments.files or ["-"]]
        client = stack.enter_context(filters.connect(arguments.url))
        counter = counters.open_or_create(
            arguments.url,
            client,
            arguments.mapping,
            arguments.name,
            given,
            keep_members=arguments.keep_members,
        )
        advance = stack.enter_context(reporter.count("Counting", None, "members"))
        for members in (members for file in files for members, _ in lines.batches(file)):
            with interrupts.step():
                new += sum(counter.add_many(members))
            total += len(members)
            advance(total)
    noun = "member" if total == 1 else "members"
    output.line(f"{total:,} {noun} read, {new:,} counted for the first time")
    return 0


def _combine(arguments: argparse.Namespace) -> int:
    url, mapping = arguments.url, arguments.mapping
    with filters.connect(url) as client:
        first, *others = (
            counters.open_operand(url, client, mapping, name) for name in arguments.names
        )
        number = getattr(first, f"count_{arguments.verb}")(*others)
    output.line(f"{number}")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    url, mapping, name = arguments.url, arguments.mapping, arguments.name
    if (name is None) is not arguments.all:
        raise CommandError("NAME: expected either a counter's name or --all")
    with filters.connect(url) as client:
        if name is None:
            counters.check_mapping(url, client, mapping)
            counter = counters.of_config(client, CounterConfig("any", mapping))
        else:
            counter = counters.open_stored(url, client, mapping, name)
        cleared = f"the mapping {mapping!r}" if name is None else f"the counter {name!r}"
        if not arguments.yes:
            asking.confirm(f"Clear {cleared} on {without_secrets(url)}?")
        with interrupts.step():
            counter.clear(mapping=name is None)
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
        output.print_json({**dataclasses.asdict(info), "bytes": info.bytes})
    else:
        output.console().print(_shown(info))
    return 0


def _shown(info: CounterInfo) -> RenderableType:
    rows: list[RenderableType] = [
        f"{info.name}: {info.count:,} distinct members, {formats.size(info.bytes)}"
    ]
    if info.granularity is not None:
        rows += ["", _slices(info)]
    if info.mapping is not None:
        taken = formats.size(info.mapping_bytes)
        rows += ["", f"mapping {info.mapping!r}: {info.members:,} members, {taken}"]
    rows += [Styled(f"warning: {sentence}", "yellow") for sentence in info.warnings]
    return Group(*rows)


def _slices(info: CounterInfo) -> Table:
    table = output.columns("slice", right=("count", "memory"))
    output.add_footer(table, "window", f"{info.count:,}", formats.size(info.bytes))
    for slice in info.slices:
        table.add_row(slice.label, f"{slice.count:,}", formats.size(slice.bytes))
    return table


def _list(arguments: argparse.Namespace) -> int:
    """Prints a line for each counter. 1: one of them can't be read; stderr has the error."""
    url, mapping = arguments.url, arguments.mapping
    with filters.connect(url) as client:
        if mapping is not None:
            counters.check_mapping(url, client, mapping)
        mappings = filters.mappings(client) if mapping is None else [mapping]
        found = [count for each in mappings for count in _counts(client, each)]
    return output.print_list(found, dict, _listed, json=arguments.json, empty="no counters here")


def _counts(client: Any, mapping: str) -> list[dict[str, Any] | None]:
    """The mapping's counters; None for each that can't be read, after its error on stderr."""
    try:
        stored = counters.stored_in(client, mapping)
    except ResponseError as error:  # the key belongs to another program
        print_error(mapping, error)
        return [None]
    if not stored:
        sys.stderr.write(
            f"mapping {mapping!r} has ids, but no counters ('clear --all' deletes them)\n"
        )
    return [_count(client, mapping, name, parameters) for name, parameters in stored.items()]


def _count(client: Any, mapping: str, name: bytes, stored: str) -> dict[str, Any] | None:
    try:
        config = counters.config_of(client, mapping, name, stored)
        count = counters.of_config(client, config).count()
    except (TBloomError, ResponseError) as error:
        print_error(text(name), error)
        return None
    parameters = counters.parameters_of(config)
    return {"mapping": config.mapping, "name": config.name, **parameters, "count": count}


def _listed(found: list[dict[str, Any]]) -> Table:
    table = output.columns("mapping", "counter", "window", right=("count",))
    for one in found:
        window = f"{one['slices']} x {one['granularity']}" if one["slices"] else ""
        table.add_row(one["mapping"] or "(integers)", one["name"], window, f"{one['count']:,}")
    return table
