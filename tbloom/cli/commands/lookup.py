"""``tbloom add`` and ``tbloom check``: lines that are new, or seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from tbloom import FilterFull, Period, TimeBloom
from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import filters, formats, interrupts, options, streams
from tbloom.cli.kit.command import Command, at_most_one
from tbloom.cli.kit.progress import Reporter

#: Returns each of the items with its answer: True if it is new.
Ask = Callable[[TimeBloom, list[bytes]], Iterable[tuple[bytes, bool]]]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The lines to look up, and which of them to print."""

    files: tuple[str, ...]
    #: Print the seen items, not the new ones.
    seen: bool
    within: int | None
    quiet: bool

    def run(self, what: str, opened: AbstractContextManager[TimeBloom], ask: Ask) -> int:
        """Prints the new items, or the seen ones; returns their number."""
        streams.check_output()
        reporter = Reporter(stderr=True, quiet=self.quiet)
        printed = total = 0
        with ExitStack() as stack:
            files = streams.open_files(stack, self.files)
            filter = stack.enter_context(opened)
            advance = stack.enter_context(reporter.count(what, None, "lines"))
            for items in (items for file in files for items, _ in streams.batches(file)):
                wanted: list[bytes] = []
                with interrupts.step():
                    try:
                        for item, new in ask(filter, items):
                            if new is not self.seen:
                                wanted.append(item)
                    finally:
                        # Also after an error: an item that was added is never answered new again.
                        streams.write_lines(wanted)
                printed += len(wanted)
                total += len(items)
                advance(total)
        kind = "seen" if self.seen else "new"
        reporter.say(f"{formats.counted(total, 'line')}, {printed:,} {kind}")
        return printed


def lookup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """NAME, FILE ..., --url, --seen, --within and --quiet; all but the name and the URL as a ``Lookup``."""

    @options.name
    @options.files
    @options.url
    @options.secret
    @click.option("--seen", is_flag=True, help="print the seen items, not the new ones")
    @click.option("--within", type=int, metavar="N", help="check the newest N slices only (all)")
    @options.quiet
    @wraps(function)
    def command(files: Any, *, seen: bool, within: int | None, quiet: bool, **others: Any) -> Any:
        return function(lookup=Lookup(files, seen, within, quiet), **others)

    return command


@click.command(cls=Command, example="tbloom add news < urls.txt > new.txt")
@lookup_options
@click.option("--exit-code", is_flag=True, help="end with 1 if no line was printed, as grep does")
@options.creation
def add(
    name: str,
    url: str,
    secret: Secret | None,
    *,
    lookup: Lookup,
    exit_code: bool,
    create: bool,
    **parameters: Any,
) -> int:
    """Adds the lines of files, and prints the new ones."""
    given = options.new(parameters, create=create)
    own = {"retry_for": filters.RETRY_FOR, "secret": secret}
    opened = filters.open_or_create(url, name, given, **own)
    printed = lookup.run("Adding", opened, lambda seen, items: _add(seen, items, lookup.within))
    return 1 if exit_code and not printed else 0


def _add(seen: TimeBloom, items: list[bytes], within: int | None) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from zip(items, seen.add_many(items, within), strict=True)
    except FilterFull:
        # The items that were added before the filter was full get the same answers again.
        for item in items:
            yield item, seen.add(item, within)


@click.command(cls=Command, example="tbloom check news urls.txt")
@lookup_options
@click.option(
    "--when",
    is_flag=True,
    help="print the seen items, each after the newest slice that holds it: label, start, end and item, with tabs between",
)
def check(name: str, url: str, secret: Secret | None, *, lookup: Lookup, when: bool) -> int:
    """Prints the new lines of files, without adding them.

    Exit code 1: no line was printed.
    """
    at_most_one(when=when, within=lookup.within)

    def ask(seen: TimeBloom, items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
        if not when:
            known = seen.contains_many(items, lookup.within)
            yield from zip(items, (not one for one in known), strict=True)
            return
        for item, period in zip(items, seen.last_seen_many(items), strict=True):
            yield (_dated(item, period), False) if period else (item, True)

    own = {"retry_for": filters.RETRY_FOR, "secret": secret}
    with filters.open_filter(url, name, **own) as seen:
        if not lookup.quiet:
            _hint(seen)
        lookup = replace(lookup, seen=lookup.seen or when)
        return 0 if lookup.run("Checking", seen, ask) else 1


def _hint(seen: TimeBloom) -> None:
    """Says so where the filter has fingerprints: no line is one."""
    maker = checked(seen.client.get(seen.config.keys.fingerprinter()))
    if maker:
        sys.stderr.write(
            f"tbloom: a crawler has filled {seen.name!r} with fingerprints ({maker}); lines such as URLs are new to it\n"
        )


def _dated(item: bytes, period: Period) -> bytes:
    """An item after its slice."""
    times = [at.isoformat() if at else "" for at in (period.start, period.end)]
    return "\t".join([period.label, *times, ""]).encode() + item
