"""``tbloom add``: adds lines, and prints the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import filters, lines, parameters
from tbloom.errors import FilterFull

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom import TimeBloom


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``check``, and the parameters of a new filter."""
    lines.add_arguments(parser)
    parameters.add_creation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Adds the lines. 0: a line was printed; 1: none."""
    opened = filters.open_or_create(
        arguments.url, arguments.name, parameters.new(arguments), retry_for=filters.RETRY_FOR
    )
    return lines.run(
        arguments, "Adding", opened, lambda seen, items: _add(seen, items, arguments.within)
    )


def _add(seen: TimeBloom, items: list[bytes], within: int | None) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from zip(items, seen.add_many(items, within), strict=True)
    except FilterFull:
        # The items that were added before the filter was full get the same answers again.
        for item in items:
            yield item, seen.add(item, within)
