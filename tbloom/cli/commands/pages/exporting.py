"""``tbloom pages export``."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tbloom.cli.commands.pages import rendering
from tbloom.cli.kit import formats, lines, outfile
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.pages import PageStore, export_warc
from tbloom.pages.members import ZST

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom.items import Item


def run(arguments: argparse.Namespace) -> int:
    """Writes pages into a WARC file. 1: the store has not all that are asked for."""
    is_named = bool(arguments.names or arguments.urls)
    if is_named and (arguments.since or arguments.until):
        raise CommandError("--since, --until: for all pages of a time, not with URLs")
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with ExitStack() as stack:
        # All are read first, so that a wrong one leaves no file.
        urls = [*_urls(stack, arguments)] if is_named else None
        store = stack.enter_context(PageStore(arguments.path, readonly=True))
        file = stack.enter_context(outfile.writing(arguments.output))
        # (How many pages are of a time is not known before they are read.)
        some = arguments.since or arguments.until
        total = None if some else len(store if urls is None else urls)
        advance = stack.enter_context(reporter.count("Exporting", total))
        done = export_warc(
            store,
            file,
            urls,
            since=arguments.since,
            until=arguments.until,
            codec=arguments.codec or ("zstd" if arguments.output.endswith(ZST) else "gzip"),
            progress=advance,
        )
    for address in done.missing:
        word = formats.printable(rendering.as_word(address))
        sys.stderr.write(f"tbloom: no page {word!r} in {arguments.path!r}\n")
    reporter.say(f"{formats.counted(done.pages, 'page')} written")
    return 1 if done.missing else 0


def _urls(stack: ExitStack, arguments: argparse.Namespace) -> Iterator[Item]:
    """The addresses on the command line, and those in the file."""
    yield from map(rendering.address, arguments.names)
    if arguments.urls is not None:
        for batch, _ in lines.batches(lines.open_file(stack, arguments.urls)):
            yield from (rendering.address(os.fsdecode(line)) for line in batch)
