"""``tbloom count``: the counters of distinct members on a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, cast

import click
from redis import ResponseError

from tbloom import ConfigError
from tbloom.cli.commands.targets import on_server
from tbloom.cli.kit import filters, formats, options, output
from tbloom.cli.kit.command import Group
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.distinct import CounterInfo, DistinctCounter
from tbloom.distinct.config import INTEGERS, PARAMETERS, MappingKeys, from_stored
from tbloom.engine.flow import text
from tbloom.engine.keys import DEFAULT_MAPPING, check_name
from tbloom.engine.parameters import read_stored
from tbloom.errors import TBloomError


def of_mapping(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --url and --mapping, and pass the mapping's counters as the first argument."""

    @wraps(command)
    def opened(*, server: Server, mapping: str, **given: Any) -> Any:
        return command(Counters(server, mapping), **given)

    return cast("Callable[..., Any]", options.all_of(on_server, options.mapping)(opened))


class Counters:
    """The counters of one mapping; errors name the mapping and the server."""

    def __init__(self, server: Server, mapping: str) -> None:
        self.server: Server = server
        self.mapping: str = mapping
        if mapping != DEFAULT_MAPPING:
            check_name(mapping, "mapping")
        self._keys = MappingKeys(mapping, server.prefix)

    def entries(self) -> dict[bytes, str]:
        """Return the entry of each counter, by name, sorted."""
        stored = self.server.client.hgetall(self._keys.counters())
        return {name: text(entry) for name, entry in sorted(stored.items())}

    def of_entry(self, name: str | bytes, entry: str) -> DistinctCounter:
        """Return the counter of an entry. Raise ConfigError if it can't be read, or if the name is no counter's."""
        config = from_stored(name, self.mapping, entry, self.server.prefix)
        if config is None:
            place = f"{name!r} in the counters of {self.mapping!r}"
            expected = "the name and the parameters of a counter that this version of tbloom can read (clear() it in Python)"
            raise ConfigError(place, entry, expected)
        stored = {key: getattr(config, key) for key in PARAMETERS}
        return self.counter(config.name, **stored)

    def counter(self, name: str, **own: Any) -> DistinctCounter:
        """Return the counter with these parameters; one of integers if that is what the mapping belongs to."""
        stored = read_stored(self.server.stored(self.mapping) or "")
        own["prefix"] = self.server.prefix
        if stored.get("kind") == INTEGERS:
            return DistinctCounter(self.server.client, name, None, **own)
        keep = stored.get("keep_members") is True
        return DistinctCounter(self.server.client, name, self.mapping, keep_members=keep, **own)

    def open(self, name: str) -> DistinctCounter:
        """Return the stored counter of this name. Without --mapping, it may be one of integers. Raise CommandError if there is none."""
        entry = self.server.client.hget(self._keys.counters(), name)
        if entry is not None:
            return self.of_entry(name, text(entry))
        if self.mapping == DEFAULT_MAPPING and self.server.kind(name) == INTEGERS:
            return Counters(self.server, name).open(name)
        raise CommandError(
            f"no counter {name!r} of the mapping {self.mapping!r} on {self.server.place} "
            "('tbloom count list' shows the counters)"
        )


@click.group(cls=Group, example="tbloom count show urls", extra="distinct", no_args_is_help=False)
def command() -> None:
    """Show and clear exact counters of distinct members."""


@command.command(example="tbloom count show urls")
@options.name
@of_mapping
@options.as_json
def show(counters: Counters, name: str) -> None:
    """Show a counter."""
    info = counters.open(name).info()
    output.show({**dataclasses.asdict(info), "bytes": info.bytes}, lambda: _text(info))


@command.command("list", example="tbloom count list")
@on_server
@options.as_json
def list_counters(server: Server) -> int:
    """Show the counters on a server.

    Exit code 1: a counter can't be read.
    """
    mappings = server.names(*filters.COUNTERS)
    found, code = output.readable(count for each in mappings for count in _counts(server, each))
    output.show(found, lambda: _listed(found))
    if not found and not code:
        output.say(f"no counters on {server.place}")
    return code


@command.command(example="tbloom count clear urls --yes")
@click.argument("name", required=False, type=options.text_of)
@of_mapping
@click.option("--all", "everything", is_flag=True, help="all counters of the mapping, and its ids")
@options.yes
def clear(counters: Counters, name: str | None, *, everything: bool) -> None:
    """Clear a counter, or with --all a whole mapping."""
    if (name is None) is not everything:
        raise CommandError("NAME: expected either a counter's name or --all")
    mapping, place = counters.mapping, counters.server.place
    if name is not None:
        counter, cleared = counters.open(name), f"the counter {name!r}"
    elif counters.server.kind(mapping) in filters.COUNTERS:
        # Any name; of integers, theirs.
        counter, cleared = counters.counter(mapping.strip("{}")), f"the mapping {mapping!r}"
    else:
        counters.server.stored(mapping)  # raises what hides the mapping, such as a missing right
        raise CommandError(f"--mapping: there is no {mapping!r} on {place}")
    output.confirm(f"Clear {cleared} on {place}?", "nothing was deleted")
    counter.clear(mapping=name is None)
    output.say(f"Cleared {cleared}")


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
    def row(label: str, count: int, size: int | None) -> dict[str, str]:
        return {"slice": label, "count": f"{count:,}", "memory": formats.size(size)}

    rows = [row(slice.label, slice.count, slice.bytes) for slice in info.slices]
    return output.table(rows, left=("slice",), totals=row("window", info.count, info.bytes))


def _counts(server: Server, mapping: str) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
    """Yield the mapping's counters by name, each with its count and parameters, or its error."""
    counters = Counters(server, mapping)
    try:
        entries = counters.entries()
    except ResponseError as error:  # the key belongs to another program
        yield mapping, error
        return
    for name, entry in entries.items():
        try:
            counter = counters.of_entry(name, entry)
            count = counter.count()
        except (TBloomError, ResponseError) as error:
            yield text(name), error
        else:
            parameters = {key: getattr(counter.config, key) for key in PARAMETERS}
            shown = {"mapping": counter.mapping, "name": counter.name}
            yield counter.name, {**shown, **parameters, "count": count}


def _listed(found: list[dict[str, Any]]) -> str:
    rows = [
        {
            "mapping": one["mapping"] or "(integers)",
            "counter": one["name"],
            "window": formats.window(one["slices"], one["granularity"]),
            "count": f"{one['count']:,}",
        }
        for one in found
    ]
    return output.table(rows, left=("mapping", "counter", "window"))
