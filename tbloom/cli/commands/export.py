"""``tbloom export``: writes a filter into a file.

The file has all items that were added before the export began: bits are only ever set, and a part is
read after the layout that names it. Claims are left out: they belong to running processes. Kept answers
are left out too: their requests will never be sent to another server.
"""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

import click

from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.info import items_in
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit import exportfile, formats, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.engine.flow import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.bloom.config import Config
    from tbloom.cli.kit.filters import Server

#: Bytes per request, which keep neither server nor client busy for long.
CHUNK = 1 << 20


@click.command(cls=Command, example="tbloom export news news.tbloom")
@options.name
@click.argument("file", type=click.Path())
@options.server
@options.quiet
def command(name: str, file: str, server: Server) -> None:
    """Writes a filter into a file.

    The file, - for standard output, is a tar.gz with a manifest; 'tbloom restore' restores the filter from there, on any
    server. Crawlers may go on meanwhile: all items that they added before the export began are in the file. Claims are
    left out.
    """
    written, names = 0, list[str]()
    client, config = server.client, server.filter(name).config
    layouts = _layouts(client, config)
    now = server.now(config.keys.root)
    with (
        streams.writing(file, is_secret=config.secret is not None) as opened,
        tarfile.open(fileobj=opened, mode="w:gz", compresslevel=exportfile.LEVEL) as tar,
        progress.bar("bytes", 0) as advance,
    ):
        for part, data in _parts(client, config, layouts, now):
            exportfile.write_part(tar, part, data)
            written += len(data)
            advance(len(data))
            names.append(part)
        now_known = _layouts(client, config)
        if any(a.generation != b.generation for a, b in zip(layouts, now_known, strict=True)):
            raise _cleared(config)
        exportfile.Manifest(
            name=config.name,
            parameters=config.stored,
            fingerprinter=checked(client.get(config.keys.fingerprinter())),
            layouts=[layout.entries for layout in layouts],
            items={part: _items(client, config, part) for part in names},
        ).write(tar)
    output.summary(f"{name}: {formats.counted(len(names), 'key')}, {formats.size(written)}")


def _layouts(client: Any, config: Config) -> list[Layout]:
    """The layout of each shard. Raises CommandError where the filter is being reconfigured."""
    found = []
    for shard in range(config.shards):
        stored = client.get(config.keys.config(shard))
        if stored is not None and text(stored) != config.stored:
            raise CommandError(
                f"filter {config.name!r}: its parameters are being changed; try again later"
            )
        layout = client.hget(config.keys.state(shard), "layout")
        found.append(Layout(config, text(layout or ""), shard))
    return found


def _parts(
    client: Any, config: Config, layouts: list[Layout], now: int
) -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of each part that exists, oldest first."""
    # Later slices exist where the server's clock was set back.
    for slice in config.window.live(now) + config.window.ahead(now):
        for shard, layout in enumerate(layouts):
            for number, part in enumerate(layout.parts(slice.label)):
                key, size = config.keys.slice(slice.label, shard, number), key_bytes(part.bits)
                starts = range(0, size, CHUNK)
                data = b"".join(client.getrange(key, at, at + CHUNK - 1) for at in starts)
                if data:
                    if len(data) != size:
                        raise _cleared(config)
                    yield f"{shard}/{slice.label}/{number}", data


def _items(client: Any, config: Config, part: str) -> int:
    """The number of items in a part now: at least those that were read."""
    shard, label, number = part.split("/")
    field = config.keys.field(label, int(number))
    return items_in(client.hget(config.keys.state(int(shard)), field))


def _cleared(config: Config) -> CommandError:
    return CommandError(f"filter {config.name!r} was cleared, or expired, during the export")
