"""``tbloom info``: a filter's slices, what they hold, and what threatens them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import filters, show

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME, --json."""
    filters.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the filter."""
    with filters.open_filter(arguments.url, arguments.name) as seen:
        info = seen.info()
    if arguments.json:
        show.print_json(show.as_dict(info))
    else:
        show.console().print(show.as_table(info))
    return 0
