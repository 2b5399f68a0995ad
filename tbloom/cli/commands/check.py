"""``tbloom check``: prints the new lines, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import filters, lines
from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom import Period, TimeBloom


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME, FILE ..., --url, --seen, --within, --quiet, --when."""
    lines.add_arguments(parser)
    parser.add_argument(
        "--when",
        action="store_true",
        help="print the seen items, each after the newest slice that holds it: label, start, end and item, with tabs between",
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks the lines. 0: a line was printed; 1: none."""
    if arguments.when and arguments.within is not None:
        raise CommandError("--within: expected none, because --when looks in all slices")

    def ask_when(seen: TimeBloom, items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
        for item, period in zip(items, seen.last_seen_many(items), strict=True):
            yield (_dated(item, period), False) if period else (item, True)

    def ask(seen: TimeBloom, items: list[bytes]) -> Iterator[tuple[bytes, bool]]:
        known = seen.contains_many(items, arguments.within)
        return zip(items, (not seen for seen in known), strict=True)

    arguments.seen |= arguments.when
    opened = filters.open_filter(arguments.url, arguments.name, retry_for=filters.RETRY_FOR)
    return lines.run(arguments, "Checking", opened, ask_when if arguments.when else ask)


def _dated(item: bytes, period: Period) -> bytes:
    """An item after its slice."""
    times = [at.isoformat() if at else "" for at in (period.start, period.end)]
    return "\t".join([period.label, *times, ""]).encode() + item
