"""``tbloom clear``: forgets all items of a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tbloom.cli.kit import formats, options, output
from tbloom.cli.kit.command import Command

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Server


@click.command(cls=Command, example="tbloom clear news --yes")
@options.name
@options.server
@options.yes
def command(name: str, server: Server) -> None:
    """Forgets all items of a filter.

    Parameters are forgotten too. Crawlers may go on meanwhile: to them, every item is new again.
    """
    seen = server.any_filter(name)
    items = formats.counted(seen.info().items, "item")
    output.confirm(f"Forget the {items} of {name!r} on {server.place}?", "nothing was deleted")
    seen.clear()
    output.say(f"Cleared {name!r}")
