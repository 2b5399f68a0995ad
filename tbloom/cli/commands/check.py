"""``tbloom check``: prints the new lines, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import filters, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom import TimeBloom


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME, FILE ..., --seen, --within, --quiet."""
    lines.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Checks the lines. 0: a line was printed; 1: none."""

    def ask(seen: TimeBloom, items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
        known = seen.contains_many(items, arguments.within)
        return zip(items, (not seen for seen in known), strict=True)

    opened = filters.open_filter(arguments.url, arguments.name, retry_for=filters.RETRY_FOR)
    return lines.run(arguments, "Checking", opened, ask)
