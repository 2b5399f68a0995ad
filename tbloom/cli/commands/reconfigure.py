"""``tbloom reconfigure``: give a filter other parameters, and keep what it has seen."""

from __future__ import annotations

from typing import Any

import click

from tbloom.bloom.config import Config, configure
from tbloom.bloom.reconfigure import reconfigure
from tbloom.cli.kit import filters, formats, options, output, progress
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.server import ServerClock


@click.command(cls=Command, example="tbloom reconfigure news --capacity 5M --slices 14")
@options.name
@options.server
@options.changeable
@options.yes
def command(name: str, server: Server, **parameters: Any) -> None:
    """Give a filter other parameters, and keep what it has seen.

    Stop the crawlers first, and start them with the new parameters: with the old ones they get ConfigMismatch. What is
    not given stays; in brackets: the default of a new filter. Fewer slices forget the oldest ones, so it asks first.
    Granularity, time zone and shards can't change: create a filter of another name.
    """
    given = options.given(parameters)
    if not given:
        raise CommandError("give a parameter, such as --capacity 5M")
    old = server.filter(name).config
    new = _changed(old, given)
    if new.slices < old.slices:
        forgotten = formats.counted(old.slices - new.slices, "slice")
        question = f"Forget the oldest {forgotten} of {name!r} on {server.place}?"
        output.confirm(question, "nothing was changed")
    with progress.bar("shards", new.shards) as advance:
        filters.of_config(server.client, new).run(reconfigure(new, ServerClock(), advance))
    output.say(f"Reconfigured {old.name!r}: start its crawlers with these parameters")


def _changed(old: Config, given: dict[str, Any]) -> Config:
    """Return the old parameters with the ``given`` ones in their place."""
    known: dict[str, Any] = {**filters.parameters_of(old)}
    del known["bits"], known["hashes"]
    # Bits and hashes are computed from the new parameters, unless they were chosen.
    computed = configure(old.name, **known)
    was_chosen = (old.bits, old.hashes) != (computed.bits, computed.hashes)
    if was_chosen and given.get("capacity", old.capacity) is not None:
        known |= {"bits": old.bits, "hashes": old.hashes}
    return configure(old.name, prefix=old.prefix, **{**known, **given})
