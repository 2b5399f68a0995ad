"""``tbloom clear``: forgets all items of a filter."""

from __future__ import annotations

import click

from tbloom.cli.kit import filters, formats, options, output
from tbloom.cli.kit.command import Command, confirm


@click.command(cls=Command, example="tbloom clear news --yes")
@options.name
@options.url
@options.yes
def command(name: str, url: str, *, yes: bool) -> None:
    """Forgets all items of a filter.

    Parameters are forgotten too. Crawlers may go on meanwhile: to them, every item is new again.
    """
    with filters.connect(url) as server:
        seen = server.any_filter(name)
        what = f"the {formats.counted(seen.info().items, 'item')}"
        confirm(f"Forget {what} of {name!r} on {server.place}?", "nothing was deleted", yes=yes)
        seen.clear()
    output.say(f"Cleared {name!r}")
