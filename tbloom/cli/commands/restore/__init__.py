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

from tbloom.bloom.config import from_stored
from tbloom.bloom.script_calls import leaves
from tbloom.cli.commands.export import expiries
from tbloom.cli.commands.restore.upload import BegunError, Upload
from tbloom.cli.kit import filters, formats, interrupts, lines
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import Reader
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse

    from tbloom import TimeBloom
    from tbloom.bloom.config import Config
    from tbloom.cli.kit.exportfile import Contents
#: Tries to install a filter between the requests of a crawler that creates it again and again.
_TRIES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE, --url, --name, --replace, --quiet."""
    parser.description = (
        f"{parser.description} Each slice expires at its old time. Don't crawl with the filter meanwhile: "
        "items that are added make the restore fail, or are forgotten."
    )
    filters.add_url(parser)
    parser.add_argument("file", metavar="FILE", help="the exported file; -: standard input")
    parser.add_argument("--name", metavar="NEW", help="another name for the filter")
    parser.add_argument("--replace", action="store_true", help="delete a filter of this name first")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def run(arguments: argparse.Namespace) -> int:
    """Restores the filter."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with filters.connect(arguments.url) as client, ExitStack() as stack:
        reader = Reader(_rewindable(stack, arguments.file), arguments.file)
        contents = reader.contents()
        config = from_stored(_name(arguments, contents), contents.header.parameters)
        reader.check(contents, config)
        old = None
        if client.get(config.keys.root) is not None:
            old = filters.open_stored(arguments.url, client, config.name)
        if old is not None and not arguments.replace:
            raise CommandError(
                f"filter {config.name!r} is on {without_secrets(arguments.url)} already; "
                "--replace deletes it, --name restores under another name"
            )
        now, _ = expiries(client, [config.keys.root])
        live = {part for part in contents.parts if part.expires > now}
        latest = _latest(config, now)
        for part in live:
            if part.expires > latest:
                raise CommandError(
                    f"{arguments.file}: slice {part.label!r} would stay for more than two windows; nothing was restored"
                )
        if not live:
            raise CommandError(f"{arguments.file}: all of its slices have left the window")
        total = sum(part.size for part in live)
        look = stack.enter_context(interrupts.held_back())
        upload = stack.enter_context(Upload(client, config, latest))
        with reporter.count("Restoring", total, "bytes") as advance:
            for done in upload.send(reader, live):
                advance(done)
                look()
        _install(upload, contents, old)
    gone = len({part.label for part in contents.parts} - {part.label for part in live})
    left = f"; {gone} slices had left the window" if gone else ""
    reporter.say(f"{config.name}: {len(live):,} keys, {formats.size(total)}{left}")
    return 0


def _install(upload: Upload, contents: Contents, old: TimeBloom | None) -> None:
    """Replaces the old filter, which stays until all parts of the new one are uploaded.

    A crawler may create the filter again between the two steps. With one shard, another try loses nothing.
    """
    tries = _TRIES if old is not None and old.config.shards == 1 else 1
    for left in reversed(range(tries)):
        if old is not None:
            old.clear()
        try:
            upload.install(contents)
        except BegunError:
            if not left:
                raise
        else:
            return


def _latest(config: Config, now: int) -> int:
    """When the last key is dropped that a filter can have (ms), if its clock was ahead by a window at most."""
    window = config.window
    return leaves(config, window.expires([*window.live(now), *window.ahead(now)][-1]), None)


def _name(arguments: argparse.Namespace, contents: Contents) -> str:
    return str(contents.header.name if arguments.name is None else arguments.name)


def _rewindable(stack: ExitStack, file: str) -> BinaryIO:
    """The file; a pipe is copied to disk first."""
    opened = lines.open_file(stack, file)
    if opened.seekable():
        return opened
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(opened, copy)
    return copy
