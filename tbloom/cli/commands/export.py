"""``tbloom export``: writes a filter into a file.

The file has all items that were added before the export began: bits are only ever set, and a part is read after the layout
that names it. Claims and kept answers are left out: they belong to running processes, and to this server.

The file is a tar, compressed with gzip. Its members are the filter's parts, each under ``SHARD/LABEL/NUMBER`` with the
bytes of Redis' string, and at the end ``manifest.json``::

    {"format": 5, "name": "news", "parameters": "{...}", "fingerprinter": "", "layouts": [""],
     "items": {"0/20190508/0": 1}}

``parameters`` are the text on the server, ``layouts`` too but for their versions, one for each shard; so servers of all
versions can take them. ``items`` are the numbers of items in the parts. When a part expires follows from its slice. The
file has no names of keys: the filter may get another name. Fields that a reader does not know are ignored. The checksum and
the length of gzip, and the manifest, show that a file is whole.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
import zlib
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click

from tbloom.bloom.config import Config
from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.info import items_in
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit import formats, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.flow import text

FORMAT = 5
MANIFEST = "manifest.json"
LEVEL = 1  # of gzip: higher levels hardly compress bits better


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
    written, found = 0, dict[str, Part]()
    client, config = server.client, server.filter(name).config
    layouts = _layouts(client, config)
    parts = parts_at(config, layouts, server.now(config.keys.root))
    with (
        streams.writing(file, is_secret=config.secret is not None) as opened,
        tarfile.open(fileobj=opened, mode="w:gz", compresslevel=LEVEL) as tar,
        progress.bar("bytes", 0) as advance,
    ):
        for place, part in parts.items():
            if data := _read(client, config, part):
                write_part(tar, place, data)
                written += len(data)
                advance(len(data))
                found[place] = part
        now_known = _layouts(client, config)
        if any(a.generation != b.generation for a, b in zip(layouts, now_known, strict=True)):
            raise _cleared(config)
        manifest = Manifest(
            name=config.name,
            parameters=config.stored,
            fingerprinter=checked(client.get(config.keys.fingerprinter())),
            layouts=[layout.entries for layout in layouts],
            items={place: _items(client, config, part) for place, part in found.items()},
        )
        write_part(tar, MANIFEST, json.dumps(asdict(manifest)).encode())
    output.summary(f"{name}: {formats.counted(len(found), 'key')}, {formats.size(written)}")


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


def _read(client: Any, config: Config, part: Part) -> bytes:
    """The bytes of a part; none, if it does not exist."""
    key = config.keys.slice(part.label, part.shard, part.number)
    data: bytes = client.get(key) or b""
    if len(data) not in (0, part.size):
        raise _cleared(config)
    return data


def _items(client: Any, config: Config, part: Part) -> int:
    """The number of items in a part now: at least those that were read."""
    field = config.keys.field(part.label, part.number)
    return items_in(client.hget(config.keys.state(part.shard), field))


def _cleared(config: Config) -> CommandError:
    return CommandError(f"filter {config.name!r} was cleared, or expired, during the export")


class Part(NamedTuple):
    """One key of a slice, when it leaves the window (ms), its size (bytes), and the number of its items."""

    label: str
    shard: int
    number: int
    expires: int
    size: int
    items: int = 0


def parts_at(config: Config, layouts: list[Layout], now: int) -> dict[str, Part]:
    """The parts that the filter can have now, oldest first, by their names in the file. (A later slice exists where a clock
    was set back.)"""
    window = config.window
    return {
        f"{shard}/{slice.label}/{number}": Part(
            slice.label, shard, number, window.expires(slice), key_bytes(part.bits)
        )
        for slice in window.live(now) + window.ahead(now)
        for shard, layout in enumerate(layouts)
        for number, part in enumerate(layout.parts(slice.label))
    }


@dataclass(frozen=True)
class Manifest:
    """All but the bytes of the parts."""

    name: str
    parameters: str
    fingerprinter: str
    #: Of each shard.
    layouts: list[str]
    #: Of each part.
    items: dict[str, int]
    format: int = FORMAT


def write_part(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Writes a member."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def opened(stack: ExitStack, file: str) -> tuple[Manifest, tarfile.TarFile]:
    """The manifest, and the tar, of a file (``-``: standard input), which the stack closes.

    Raises CommandError where the file is not whole.
    """
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    try:
        with gzip.open(sys.stdin.buffer if file == "-" else Path(file)) as packed:
            shutil.copyfileobj(packed, copy)
        copy.seek(0)
        tar = stack.enter_context(tarfile.open(fileobj=copy, mode="r:"))  # noqa: SIM115 - the same
        return _manifest(tar), tar
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, *_WRONG):
        raise damaged(file) from None


def damaged(file: str) -> CommandError:
    """The error for a file that is no export, or not a whole one."""
    return CommandError(
        f"{file}: damaged, or not a file by 'tbloom export' in format {FORMAT}; nothing was restored"
    )


#: The errors that wrong values in a manifest raise.
_WRONG = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


def _manifest(tar: tarfile.TarFile) -> Manifest:
    member = tar.extractfile(MANIFEST)
    values = json.load(member) if member else {}
    found = Manifest(**{name: values[name] for name in Manifest.__annotations__})
    texts = [found.name, found.parameters, found.fingerprinter, *found.layouts]
    if found.format != FORMAT or not all(isinstance(text, str) for text in texts):
        raise ValueError
    if not all(type(count) is int and count >= 0 for count in found.items.values()):
        raise ValueError
    if found.fingerprinter != checked(found.fingerprinter):
        raise ValueError
    return found
