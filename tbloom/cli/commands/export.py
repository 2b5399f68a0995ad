"""``tbloom export`` and ``tbloom import``: write a filter into a file, and read it from there (``tbloom/bloom/transfer.py``)."""

from __future__ import annotations

import sys
from typing import Any

import click

from tbloom.bloom import transfer
from tbloom.bloom.archive import reading
from tbloom.bloom.config import Config, configure, from_stored
from tbloom.cli.commands.targets import on_server
from tbloom.cli.kit import filters, formats, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.server import server_time


@click.command("export", cls=Command, example="tbloom export news news.tbloom")
@options.name
@click.argument("file", type=click.Path())
@on_server
@options.quiet
def export(name: str, file: str, server: Server) -> None:
    """Write a filter into a file.

    The file, - for standard output, is a tar.gz with a manifest; 'tbloom import' reads the filter from there, on any
    server. Crawlers may go on meanwhile: all items that they added before the export began are in the file. Claims are
    left out.
    """
    seen = server.filter(name)
    with (
        streams.writing(file, is_secret=seen.config.secret is not None) as opened,
        progress.bar("bytes", 0) as advance,
    ):
        keys, written = transfer.export(seen, opened, advance)
    output.summary(f"{name}: {formats.counted(keys, 'key')}, {formats.size(written)}")


@click.command("import", cls=Command, example="tbloom import news.tbloom --name news-2")
@click.argument("file", type=click.Path())
@on_server
@click.option("--name", metavar="NEW", type=options.text_of, help="another name for the filter")
@click.option("--replace", is_flag=True, help="delete a filter of this name first")
@click.option("--slices", type=int, metavar="N", help="another number of slices")
@options.quiet
def import_(
    file: str, server: Server, name: str | None, slices: int | None, *, replace: bool
) -> None:
    """Make a filter from an exported file.

    Each slice expires at its old time, or with --slices, at that of the new window. The file - is standard input. Don't crawl with the filter meanwhile: items that are added
    are forgotten, or make the import fail, when --replace has deleted the old filter already. Needs room for the whole filter in the folder of temporary files.
    """
    with reading(sys.stdin.buffer if file == "-" else file) as archive:
        manifest = archive.manifest
        config = from_stored(name or manifest.name, manifest.parameters, prefix=server.prefix)
        layouts = archive.layouts(config)
        if slices is not None:
            config = _with_slices(config, slices)
        seen = filters.of_config(server.client, config)
        now = seen.run(server_time(config))
        parts = archive.live_parts(config, layouts, now)
        if slices is not None:
            live = [slice.label for slice in config.window.live(now)]
            labels = sorted({*live, *(part.label for part in parts)})
            manifest.layouts[:] = [layout.entries_of(labels) for layout in layouts]
        old = None if server.stored(config.name) is None else server.filter(config.name)
        if old is not None and not replace:
            raise CommandError(
                f"filter {config.name!r} is on {server.place} already; "
                "--replace deletes it, --name gives another name"
            )
        total = sum(part.size for part in parts)
        with progress.bar("bytes", total) as advance:
            transfer.restore(seen, archive, parts, old, advance)
        left = len(archive) - len(parts)
    gone = f"; {formats.counted(left, 'key')} had left the window" if left else ""
    output.summary(
        f"{config.name}: {formats.counted(len(parts), 'key')}, {formats.size(total)}{gone}"
    )


def _with_slices(config: Config, slices: int) -> Config:
    """Return the parameters with another number of slices."""
    known: dict[str, Any] = {**filters.parameters_of(config)}
    # What follows from the other parameters follows from the new window, too.
    for derived in {"bits": None, "hashes": None}, {"capacity": None}:
        if configure(config.name, **{**known, **derived}).stored == config.stored:
            known |= derived
            break
    return configure(config.name, prefix=config.prefix, **{**known, "slices": slices})
