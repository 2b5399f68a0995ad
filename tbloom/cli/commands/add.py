"""``tbloom add``: adds lines, and prints the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tbloom.cli.kit import filters, options
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.lookup import Lookup, lookup_options
from tbloom.errors import FilterFull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom import TimeBloom


@click.command(cls=Command, example="tbloom add news < urls.txt > new.txt")
@lookup_options
@click.option("--exit-code", is_flag=True, help="end with 1 if no line was printed, as grep does")
@options.creation
def command(
    name: str, url: str, *, lookup: Lookup, exit_code: bool, create: bool, **parameters: Any
) -> int:
    """Adds the lines of files, and prints the new ones."""
    given = options.new(parameters, create=create)
    opened = filters.open_or_create(url, name, given, retry_for=filters.RETRY_FOR)
    printed = lookup.run("Adding", opened, lambda seen, items: _add(seen, items, lookup.within))
    return 1 if exit_code and not printed else 0


def _add(seen: TimeBloom, items: list[bytes], within: int | None) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from zip(items, seen.add_many(items, within), strict=True)
    except FilterFull:
        # The items that were added before the filter was full get the same answers again.
        for item in items:
            yield item, seen.add(item, within)
