"""``tbloom clear``: forgets all items of a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import asking, filters, interrupts
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME, --url, --yes."""
    parser.description = (
        f"{parser.description} Parameters are forgotten too. Crawlers may go on meanwhile: to "
        "them, every item is new again."
    )
    filters.add_arguments(parser)
    asking.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Clears the filter. 1: the user has said no."""
    url, name = arguments.url, arguments.name
    with filters.connect(url) as client:
        seen = filters.stored_exact(client, name) or filters.open_stored(url, client, name)
        if not arguments.yes:
            items = f"{seen.info().items:,}"
            asking.confirm(f"Forget the {items} items of {name!r} on {without_secrets(url)}?")
        with interrupts.step():
            seen.clear()
    Reporter(stderr=True).say(f"Cleared {name!r}")
    return 0
