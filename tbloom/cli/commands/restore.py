"""``tbloom restore``: a filter out of a file that ``tbloom export`` has written.

The file is read twice: before anything is written to the server, it is known to be whole. Parts are
taken in under other names, with a short life, so that what is left of a restore that fails vanishes by
itself. Then all of a shard is put in its place at once. With several shards, the parameters that all
clients compare theirs with come first, so that crawlers with others are refused from then on; one
that adds to a shard before its turn makes the restore fail, which then clears what it has restored. (What
nothing can be done about: the server is lost, or the restore killed, between two shards. Restore the
filter again then, with --replace.)
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

from tbloom.bloom.config import from_stored
from tbloom.cli.commands.export import expiries
from tbloom.cli.kit import filters, interrupts, lines, words
from tbloom.cli.kit.arrivals import Arrivals, Begun
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import Reader
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse

    from tbloom import TimeBloom
    from tbloom.cli.kit.exportfile import Contents


_TRIES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, FILE, --name, --replace, --quiet."""
    parser.description = (
        f"{parser.description} Each slice leaves the window when it would have left it. Don't crawl with "
        "the filter until it is done: what is added meanwhile makes the restore fail, or is forgotten."
    )
    filters.add_url(parser)
    parser.add_argument("file", metavar="FILE", help="- is standard input")
    parser.add_argument("--name", metavar="NEW", help="another name than that in the file")
    parser.add_argument(
        "--replace", action="store_true", help="forget the filter of this name that is there"
    )
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
                "--replace forgets it, --name gives this one another name"
            )
        now, _ = expiries(client, [config.keys.root])
        live = {part for part in contents.parts if part.expires > now}
        if not live:
            raise CommandError(f"{arguments.file}: none of its slices is in the window any more")
        total = sum(part.size for part in live)
        look = stack.enter_context(interrupts.held_back())
        arrivals = stack.enter_context(Arrivals(client, config))
        with reporter.count("Restoring", total, "bytes") as advance:
            for done in arrivals.take_in(reader, live):
                advance(done)
                look()
        _install(arrivals, contents, old)
    gone = len({part.label for part in contents.parts} - {part.label for part in live})
    left = f"; {gone} slices had left the window" if gone else ""
    reporter.say(f"{config.name}: {len(live):,} keys, {words.size(total)}{left}")
    return 0


def _install(arrivals: Arrivals, contents: Contents, old: TimeBloom | None) -> None:
    """Puts it in the place of the old one, which is there until all of the new one is.

    A crawler that goes on may begin the filter anew in between. With one shard, which is put in its
    place at once, nothing is lost by another try.
    """
    tries = _TRIES if old is not None and old.config.shards == 1 else 1
    for left in reversed(range(tries)):
        if old is not None:
            old.clear()
        try:
            arrivals.install(contents)
        except Begun:
            if not left:
                raise
        else:
            return


def _name(arguments: argparse.Namespace, contents: Contents) -> str:
    return str(contents.header.name if arguments.name is None else arguments.name)


def _rewindable(stack: ExitStack, file: str) -> BinaryIO:
    """The file; what comes through a pipe, on disk."""
    opened = lines.open_file(stack, file)
    if opened.seekable():
        return opened
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(opened, copy)
    return copy
