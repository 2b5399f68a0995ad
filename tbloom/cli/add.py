"""``tbloom add``: adds lines, and prints those that are new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli import filters, lines, parameters

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``check``, and what a new filter is like."""
    lines.add_arguments(parser)
    parameters.add_creation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Adds and prints. 0: something was printed; 1: nothing."""
    opened = filters.open_or_create(
        arguments.url, arguments.name, parameters.new(arguments), patience=filters.PATIENCE
    )
    return lines.run(
        arguments, "Adding", opened, lambda seen, items: seen.add_many(items, arguments.within)
    )
