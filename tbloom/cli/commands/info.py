"""``tbloom info``: a filter, slice by slice, with its warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import filter_info, filters, output

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME, --url, --all, --json."""
    filters.add_arguments(parser)
    filter_info.add_all(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the filter."""
    with filters.open_filter(arguments.url, arguments.name) as seen:
        info = seen.info()
    if arguments.json:
        output.print_json(filter_info.as_dict(info))
    else:
        output.console().print(filter_info.as_table(info, empty=arguments.all))
    return 0
