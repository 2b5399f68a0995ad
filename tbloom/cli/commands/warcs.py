"""``tbloom pages import`` and ``tbloom pages export``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.cli.commands import pagetext
from tbloom.cli.kit import formats, interrupts, numbers, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import ConfigError
from tbloom.pages import PageStore, export_warc, import_warc
from tbloom.pages.exchange.warcs import is_warc

if TYPE_CHECKING:
    from tbloom.items import Item


@click.command(
    "import",
    cls=Command,
    example="tbloom pages import pages crawl.warc.gz",
)
@pagetext.path_argument
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=click.Path())
@options.as_json
@options.quiet
@click.option(
    "--max-body",
    type=numbers.memory,
    metavar="SIZE",
    default="128MB",
    help="skip pages with a longer body (128MB)",
)
@pagetext.codec_option("gzip", "gzip")
@options.slices("store", "pages are kept for ever")
def import_pages(
    *, path: str, source: tuple[str, ...], as_json: bool, quiet: bool, max_body: int, **like: Any
) -> int:
    """Stores the pages of WARC files, or of another store.

    A source is a WARC file, - for standard input, or a store's folder. A page that the store has, fetched at the same
    time or later, stays; so after an interruption, the same command goes on. A file is read up to a damaged place, which is
    printed. Exit code 1: there are some.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with ExitStack() as stack:
        # All sources are found first, so that a wrong one creates no store.
        files = [file for word in source for file in _files(stack, word, Path(path))]
        what = source[0] if len(source) == 1 else f"{len(source)} sources"
        store = stack.enter_context(PageStore(path, **like))
        look = stack.enter_context(interrupts.held_back())
        advance = stack.enter_context(reporter.count(f"Importing {what}", None, "bytes"))

        def progress(done: int, total: int | None) -> None:
            advance(done, total)
            look()

        done = import_warc(store, *files, progress=progress, max_body=max_body)
    if as_json:
        names = ("stored", "present", "skipped", "damaged")
        output.print_json({name: getattr(done, name) for name in names})
    else:
        for where in done.damaged:
            output.line(formats.printable(where))
    skipped = Counter(done.skipped).most_common()
    rest = ", ".join(f"{number:,} {kind}" for kind, number in skipped)
    reporter.say(
        f"{formats.counted(done.stored, 'page')} stored, {done.present:,} already there; skipped: {rest or 'nothing'}"
    )
    return 1 if done.damaged else 0


@click.command(cls=Command, example="tbloom pages export pages -o june.warc.gz --since 2026-06-01")
@pagetext.path_argument
@click.argument("names", metavar="[URL]...", nargs=-1)
@click.option(
    "--urls", metavar="FILE", type=click.Path(), help="a URL in each line; -: standard input"
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="the WARC file; -: standard output",
)
@click.option(
    "--since", type=numbers.moment, metavar="TIME", help="only pages fetched then or later"
)
@click.option("--until", type=numbers.moment, metavar="TIME", help="only pages fetched before")
@pagetext.codec_option(None, "zstd for FILE.warc.zst, else gzip")
@options.quiet
def export(
    *,
    path: str,
    names: tuple[str, ...],
    urls: str | None,
    output: str,
    since: datetime | None,
    until: datetime | None,
    codec: str | None,
    quiet: bool,
) -> int:
    """Writes pages into a WARC file of their own.

    Without URLs, all pages. A URL may be key:HEX (see ls). Exit code 1: the store has no page of a URL, or one can't be
    read.
    """
    is_named = bool(names or urls)
    if is_named and (since or until):
        raise CommandError("--since, --until: for all pages of a time, not with URLs")
    reporter = Reporter(stderr=True, quiet=quiet)
    with ExitStack() as stack:
        # All are read first, so that a wrong one leaves no file.
        addresses = [*_addresses(stack, names, urls)] if is_named else None
        store = stack.enter_context(PageStore(path, readonly=True))
        file = stack.enter_context(streams.writing(output))
        # (How many pages are of a time is not known before they are read.)
        total = len(store if addresses is None else addresses)
        advance = stack.enter_context(
            reporter.count("Exporting", None if since or until else total)
        )
        done = export_warc(
            store,
            file,
            addresses,
            since=since,
            until=until,
            codec=codec or ("zstd" if output.endswith(".warc.zst") else "gzip"),
            progress=advance,
        )
    for address in done.missing:
        word = formats.printable(pagetext.as_word(address))
        sys.stderr.write(f"tbloom: no page {word!r} in {path!r}\n")
    reporter.say(f"{formats.counted(done.pages, 'page')} written")
    return 1 if done.missing else 0


def _addresses(stack: ExitStack, words: tuple[str, ...], urls: str | None) -> Iterator[Item]:
    """The addresses on the command line, and those in the file."""
    yield from map(pagetext.address_of, words)
    if urls is not None:
        for batch, _ in streams.batches(streams.open_file(stack, urls)):
            yield from (pagetext.address_of(os.fsdecode(line)) for line in batch)


def _files(stack: ExitStack, word: str, target: Path) -> list[str | BinaryIO]:
    """The sources that a word means."""
    source = Path(word)
    if word == "-" or source.is_fifo():
        file = streams.open_file(stack, word)
        if not file.peek(1):  # type: ignore[attr-defined] # of a file, and of standard input
            raise ConfigError("source", word, "a WARC file, but it is empty")
        return [file]
    if source.is_dir():
        if source.resolve() == target.resolve():
            raise ConfigError("source", word, "another store than the one to import into")
        try:
            PageStore(source, readonly=True).close()
        except ConfigError:  # it would name the store to import into
            raise ConfigError("source", word, "a WARC file, or a page store") from None
        return [word]
    streams.open_file(stack, word)  # raises if there is none
    if not is_warc(source):
        raise ConfigError("source", word, "a WARC file, or a page store")
    return [word]
