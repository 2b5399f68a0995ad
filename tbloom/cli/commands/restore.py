"""``tbloom restore``: a filter from a file by ``tbloom export``.

The file is read twice, so that it is known to be whole before anything is written to the server. Its
parts are uploaded under temporary names with a short TTL, so the remains of a failed restore expire.
Then each shard is installed by one script call.

With several shards, the parameters are stored first, so that crawlers with other parameters are refused
from then on. A crawler that adds to a shard before the shard is installed makes the restore fail; the
shards that were installed are cleared then. If the server fails or the restore is killed between two
shards, the filter is incomplete: restore it again with --replace.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

import click

from tbloom.bloom.config import from_stored
from tbloom.bloom.script_calls import leaves
from tbloom.cli.commands.export import expiries
from tbloom.cli.commands.upload import BegunError, Upload
from tbloom.cli.kit import filters, formats, interrupts, lines, options
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import Reader
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    from tbloom import TimeBloom
    from tbloom.bloom.config import Config
    from tbloom.cli.kit.exportfile import Manifest
#: Tries to install a filter between the requests of a crawler that creates it again and again.
_TRIES = 100


@click.command(cls=Command, example="tbloom restore news.tbloom --name news-2")
@click.argument("file", type=click.Path())
@options.url
@click.option("--name", metavar="NEW", type=options.text_of, help="another name for the filter")
@click.option("--replace", is_flag=True, help="delete a filter of this name first")
@options.quiet
def command(file: str, url: str, name: str | None, *, replace: bool, quiet: bool) -> None:
    """Restores a filter from an exported file.

    - is standard input. Each slice expires at its old time. Don't crawl with the filter meanwhile: items that are added
    make the restore fail, or are forgotten.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with filters.connect(url) as server, ExitStack() as stack:
        reader = Reader(_rewindable(stack, file), file)
        manifest = reader.manifest()
        config = from_stored(
            manifest.header.name if name is None else name, manifest.header.parameters
        )
        reader.check(manifest, config)
        old = None if server.stored(config.name) is None else server.filter(config.name)
        if old is not None and not replace:
            raise CommandError(
                f"filter {config.name!r} is on {server.place} already; "
                "--replace deletes it, --name restores under another name"
            )
        now, _ = expiries(server.client, [config.keys.root])
        live = {part for part in manifest.parts if part.expires > now}
        latest = _latest(config, now)
        for part in live:
            if part.expires > latest:
                raise CommandError(
                    f"{file}: slice {part.label!r} would stay for more than two windows; nothing was restored"
                )
        if not live:
            raise CommandError(f"{file}: all of its slices have left the window")
        total = sum(part.size for part in live)
        look = stack.enter_context(interrupts.held_back())
        upload = stack.enter_context(Upload(server.client, config, latest))
        with reporter.count("Restoring", total, "bytes") as advance:
            for done in upload.send(reader.parts(manifest), live):
                advance(done)
                look()
        _install(upload, manifest, old)
    gone = len({part.label for part in manifest.parts} - {part.label for part in live})
    left = f"; {formats.counted(gone, 'slice')} had left the window" if gone else ""
    keys = formats.counted(len(live), "key")
    reporter.say(f"{config.name}: {keys}, {formats.size(total)}{left}")


def _install(upload: Upload, manifest: Manifest, old: TimeBloom | None) -> None:
    """Replaces the old filter, which stays until all parts of the new one are uploaded.

    A crawler may create the filter again between the two steps. With one shard, another try loses nothing.
    """
    tries = _TRIES if old is not None and old.config.shards == 1 else 1
    for left in reversed(range(tries)):
        if old is not None:
            old.clear()
        try:
            upload.install(manifest)
        except BegunError:
            if not left:
                raise
        else:
            return


def _latest(config: Config, now: int) -> int:
    """When the last key is dropped that a filter can have (ms), if its clock was ahead by a window at most."""
    window = config.window
    return leaves(config, window.expires([*window.live(now), *window.ahead(now)][-1]), None)


def _rewindable(stack: ExitStack, file: str) -> BinaryIO:
    """The file; a pipe is copied to disk first."""
    opened = lines.open_file(stack, file)
    if opened.seekable():
        return opened
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(opened, copy)
    return copy
