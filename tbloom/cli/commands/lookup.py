"""``tbloom add`` and ``check``, which print the lines that are new or seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import click

from tbloom import TimeBloom
from tbloom.arguments import check_within
from tbloom.bloom.fingerprinter import maker_of
from tbloom.bloom.hasher import Secret
from tbloom.cli.commands.targets import on_server
from tbloom.cli.kit import filters, formats, interrupts, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server

_lookup = options.all_of(
    options.name,
    options.files,
    on_server,
    options.secret,
    options.quiet,
)


@click.command(cls=Command, example="tbloom add news < urls.txt > new.txt")
@_lookup
@options.creation
def add(
    name: str,
    files: tuple[str, ...],
    server: Server,
    secret: Secret | None,
    **parameters: Any,
) -> int:
    """Add the lines of files, and print the new ones.

    Exit code 1: a file could not be read.
    """
    given = options.creation_parameters(parameters)
    filter = server.open_or_create(name, given, retry_for=filters.RETRY_FOR, secret=secret)
    ask = partial(_add, filter, server.place)
    total, _, failed = _run(files, ask, kind="new", line="answer")
    if given is not None and not total and not failed:
        filters.begin(filter)
    return 1 if failed else 0


def _add(seen: TimeBloom, place: str, items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from zip(items, seen.add_many(items), strict=True)
    except filters.FULL as error:
        # The items that were added before there was no more room get the same answers again.
        has_room = True
        for item in items:
            try:
                yield item, seen.add(item)
            except type(error):
                has_room = False
        if not has_room:
            raise
    except filters.OUTAGES as error:
        lost = f"the answers to {formats.counted(len(items), 'line')} could not be printed; they may be seen now"
        raise CommandError(f"{place}: {error}; {lost}") from None


@click.command(cls=Command, example="tbloom check news urls.txt")
@_lookup
@click.option("--seen", is_flag=True, help="print the seen items, not the new ones")
@click.option("--within", type=int, metavar="N", help="search the newest N slices only (all)")
def check(
    name: str,
    files: tuple[str, ...],
    server: Server,
    secret: Secret | None,
    within: int | None,
    *,
    seen: bool,
) -> int:
    """Print the new lines of files, without adding them.

    NAME is as of tbloom info. Exit code 1: no line was printed, or a file could not be read.
    """
    filter = server.filter(name, retry_for=filters.RETRY_FOR, secret=secret)
    check_within(within, filter.config.slices)  # where there are no lines, too
    if maker := maker_of(filter.client.get(filter.config.keys.fingerprinter())):
        output.summary(
            f"tbloom: a crawler has filled {name!r} with fingerprints ({maker}); lines such as URLs are new to it"
        )

    def ask(items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
        known = filter.contains_many(items, within)
        return zip(items, (is_known is seen for is_known in known), strict=True)

    _, printed, failed = _run(files, ask, kind="seen" if seen else "new")
    return 1 if failed or not printed else 0


def _run(
    files: tuple[str, ...],
    ask: Callable[[list[bytes]], Iterable[tuple[bytes, bool]]],
    kind: str,
    line: str = "",
) -> tuple[int, int, int]:
    """Print the files' lines for which ``ask`` says True, batch by batch. Return how many there are, how many were printed, and how
    many files could not be read.

    If ``line`` is given, output that can't be printed is an error, which calls a line by this name.
    """
    printed = total = 0
    inputs = streams.Inputs(files)
    try:
        with (
            filters.until_full(
                lambda: f"{formats.counted(total, 'line')} answered, {printed:,} {kind}"
            ),
            progress.bar("bytes", inputs.size(), prints=True) as advance,
        ):
            for items in inputs:
                with interrupts.step():
                    wanted: list[bytes] = []
                    try:
                        for item, is_wanted in ask(items):
                            total += 1
                            if is_wanted:
                                wanted.append(item)
                    finally:
                        # After an error too: an item that was added is never new again.
                        streams.write(b"".join(item + b"\n" for item in wanted), line)
                        printed += len(wanted)
                advance(sum(map(len, items)) + len(items))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{formats.counted(total, 'line')} answered") from None
    output.summary(f"{formats.counted(total, 'line')}, {printed:,} {kind}")
    return total, printed, inputs.failed
