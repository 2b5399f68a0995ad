"""``tbloom check``: prints the new lines, and changes nothing."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tbloom.bloom.fingerprinter import checked
from tbloom.cli.kit import filters
from tbloom.cli.kit.command import Command, at_most_one
from tbloom.cli.kit.lookup import Lookup, lookup_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom import Period, TimeBloom


@click.command(cls=Command, example="tbloom check news urls.txt")
@lookup_options
@click.option(
    "--when",
    is_flag=True,
    help="print the seen items, each after the newest slice that holds it: label, start, end and item, with tabs between",
)
def command(name: str, url: str, *, lookup: Lookup, when: bool) -> int:
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

    with filters.open_filter(url, name, retry_for=filters.RETRY_FOR) as seen:
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
