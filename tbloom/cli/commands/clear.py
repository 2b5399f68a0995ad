"""``tbloom clear``: forgets all items of a filter."""

from __future__ import annotations

import click

from tbloom import TimeBloom
from tbloom.bloom.config import shards_of_earlier
from tbloom.cli.kit import filters, formats, interrupts, options
from tbloom.cli.kit.command import Command, confirm
from tbloom.cli.kit.progress import Reporter


@click.command(cls=Command, example="tbloom clear news")
@options.name
@options.url
@options.yes
def command(name: str, url: str, *, yes: bool) -> None:
    """Forgets all items of a filter.

    Parameters are forgotten too. Crawlers may go on meanwhile: to them, every item is new again.
    """
    with filters.connect(url) as server:
        is_earlier = shards_of_earlier(server.stored(name) or "") > 0
        seen = TimeBloom(server.client, name) if is_earlier else server.any_filter(name)
        if not yes:
            question = (
                f"Delete {name!r} on {server.place}, which an earlier version of tbloom wrote?"
            )
            if not is_earlier:
                items = formats.counted(seen.info().items, "item")
                question = f"Forget the {items} of {name!r} on {server.place}?"
            confirm(question, "nothing was deleted", yes=yes)
        with interrupts.step():
            seen.clear()
    Reporter(stderr=True).say(f"Cleared {name!r}")
