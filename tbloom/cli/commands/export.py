"""``tbloom export``: writes a filter into a file.

The file has all items that were added before the export began: bits are only ever set, and a part is
read after the layout that names it. The current slice is read last, so that the file also has most of
the items that are added during the export. Claims are left out: they belong to running processes.
Kept answers are left out too: their requests will never be sent to another server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit import filters, formats, interrupts, options, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import CHUNK, Header, Part, Shard, Writer
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.flow import ScriptCall, text
from tbloom.engine.scripts import Script
from tbloom.window import ALWAYS, NoWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.bloom.config import Config

_EXPIRIES = Script("bloom/expiries")


class Found(NamedTuple):
    """A shard and its parts, as found on the server."""

    shard: Shard
    parts: list[Part]


@click.command(cls=Command, example="tbloom export news news.tbloom")
@options.name
@click.argument("file", type=click.Path())
@options.url
@options.quiet
def command(name: str, file: str, url: str, *, quiet: bool) -> None:
    """Writes a filter into a file.

    The file, - for standard output, is a tar.gz with a manifest; 'tbloom restore' restores the filter from there, on any
    server. Crawlers may go on meanwhile: all items that they added before the export began are in the file. Claims are
    left out.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with filters.connect(url) as server:
        client, config = server.client, server.filter(name).config
        root = [config.keys.root]
        now, times = expiries(client, root)
        [expires] = _checked(config, root, times)
        known = checked(client.get(config.keys.fingerprinter()))
        first = [_look(client, config, shard, now) for shard in range(config.shards)]
        total = sum(part.size for found in first for part in found.parts)
        parts = written = 0
        with (
            streams.writing(file) as opened,
            reporter.count("Exporting", total, "bytes") as advance,
            interrupts.held_back() as look,
        ):

            def pieces(part: Part) -> Iterator[bytes]:
                nonlocal written
                for chunk in _chunks(client, config, part):
                    yield chunk
                    written += len(chunk)
                    advance(written)
                    look()

            out, shards = Writer(opened), []
            for record in _records(client, config, first, now):
                if isinstance(record, Shard):
                    shards.append(record)
                else:
                    out.add(record, pieces(record))
                    parts += 1
            out.end(Header(config.name, config.stored, now, expires, known), shards)
    reporter.say(f"{config.name}: {formats.counted(parts, 'key')}, {formats.size(written)}")


def expiries(client: Any, keys: list[str]) -> tuple[int, list[int]]:
    """The server's clock, and when each of these keys of one shard expires (ms)."""
    call = ScriptCall(_EXPIRIES, keys).with_text()
    _, (now, *times) = client.execute_command(*call.words)
    return now, times


def _records(client: Any, config: Config, first: list[Found], now: int) -> Iterator[Shard | Part]:
    """The older slices of all shards; then the rest of each shard, which is looked up again."""
    current = config.window.slice_at(now).label
    older = [part for found in first for part in found.parts if part.label < current]
    yield from older
    known = {part.place for part in older}
    now, _ = expiries(client, [config.keys.root])
    for number in range(config.shards):
        shard, parts = _look(client, config, number, now)
        yield shard
        yield from (part for part in parts if part.place not in known)
    if client.get(config.keys.root) is None:
        raise CommandError(f"filter {config.name!r} was cleared, or expired, during the export")


def _look(client: Any, config: Config, shard: int, now: int) -> Found:
    """A shard's live slices, and those that began before the server's clock was set back."""
    keys = config.keys
    own = [keys.config(shard), keys.layout(shard), keys.register(shard)]
    stored, layout = client.get(own[0]), client.get(own[1])
    if stored is not None and text(stored) != config.stored:
        raise CommandError(
            f"filter {config.name!r}: its parameters are being changed; try again later"
        )
    layout = Layout(config, text(layout or ""), shard)
    register = set(map(text, client.hgetall(own[2])))
    slices = config.window.live(now)
    slices += [s for s in config.window.ahead(now) if keys.slice(s.label, shard) in register]
    places = [
        (slice.label, number, key_bytes(part.bits))
        for slice in slices
        for number, part in enumerate(layout.parts(slice.label))
    ]
    names = [*own, *(keys.slice(label, shard, number) for label, number, _ in places)]
    _, times = expiries(client, names)
    times = _checked(config, names, times)
    parts = [
        Part(shard, label, number, expires, size)
        for (label, number, size), expires in zip(places, times[len(own) :], strict=True)
        if expires > 0
    ]
    return Found(Shard(shard, layout.entries, *times[: len(own)]), parts)


def _checked(config: Config, names: list[str], times: list[int]) -> list[int]:
    """When these keys expire (ms), if that is right for the filter."""
    if isinstance(config.window, NoWindow):
        return [ALWAYS.end if time == -1 else time for time in times]
    if -1 in times:
        raise CommandError(
            f"key {names[times.index(-1)]!r} has no time to live; tbloom sets one for every key"
        )
    return times


def _chunks(client: Any, config: Config, part: Part) -> Iterator[bytes]:
    """A part's bytes; zeros in place of those that have expired during the export."""
    key = config.keys.slice(*part.place)
    for start in range(0, part.size, CHUNK):
        size = min(CHUNK, part.size - start)
        chunk: bytes = client.getrange(key, start, start + size - 1)
        if len(chunk) != size:
            now, _ = expiries(client, [key])
            if now < part.expires:
                raise CommandError(f"key {key!r} has changed its size; was the filter cleared?")
            chunk = bytes(size)
        yield chunk
