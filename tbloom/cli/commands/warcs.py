"""``tbloom pages import`` and ``tbloom pages export``."""

from __future__ import annotations

import errno
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.cli.commands import pagetext
from tbloom.cli.kit import formats, interrupts, lines, numbers, options, outfile, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import ConfigError
from tbloom.pages import PageStore, config, export_warc, opening
from tbloom.pages.exchange import importing, warcs

if TYPE_CHECKING:
    from tbloom.items import Item

#: Bytes between two steps of a progress bar: most records are much smaller.
_STEP_BYTES = 1 << 20


@click.command(
    "import",
    cls=Command,
    example="tbloom pages import pages crawl.warc.gz",
)
@pagetext.path_argument
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--by-fingerprint",
    is_flag=True,
    help="Scrapy's cache is of a project with a REQUEST_FINGERPRINTER_CLASS of its own",
)
@options.as_json
@options.quiet
@pagetext.codec_option("gzip", "gzip")
@options.slices("store", "pages are kept for ever")
def import_pages(
    *,
    path: str,
    source: tuple[str, ...],
    by_fingerprint: bool,
    as_json: bool,
    quiet: bool,
    codec: str,
    **like: Any,
) -> int:
    """Stores the pages of WARC files, of another store, or of Scrapy's cache.

    A source is a WARC file, - for standard input, a store's folder, or a folder or database of Scrapy's HTTP cache. A
    page that the store has, fetched at the same time or later, stays; so after an interruption, the same command goes
    on. Damaged places are printed. Exit code 1: there are some.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    stored = present = 0
    skipped, damaged = Counter[str](), list[str]()
    with ExitStack() as stack:
        # All is checked first, so that a wrong argument creates no store.
        config.given(**like)
        sources = _sources(stack, source, opening.folder(path), by_fingerprint=by_fingerprint)
        store = stack.enter_context(PageStore(path, **like, codec=codec))
        look = stack.enter_context(interrupts.held_back())
        for one in sources:
            with bar(reporter, f"Importing {one.name}", one.unit) as advance:

                def progress(done: int, total: int | None) -> None:
                    advance(done, total)
                    look()

                done = importing.import_pages(store, one, progress)
            stored, present = stored + done.stored, present + done.present
            skipped.update(done.skipped)
            damaged += done.damaged
    if as_json:
        found = {"stored": stored, "present": present, "skipped": skipped, "damaged": damaged}
        output.print_json(found)
    else:
        for where in damaged:
            output.line(formats.printable(where))
    rest = ", ".join(f"{number:,} {kind}" for kind, number in skipped.most_common())
    reporter.say(
        f"{formats.counted(stored, 'page')} stored, {present:,} already there; skipped: {rest or 'nothing'}"
    )
    return 1 if damaged else 0


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
        file = stack.enter_context(outfile.writing(output))
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


@contextmanager
def bar(
    reporter: Reporter, text: str, unit: str = "bytes"
) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function that takes the bytes or pages done, and their total, which is known only then."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        shown = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal advance, shown
            if advance is None:
                advance = stack.enter_context(reporter.count(text, total, unit))
            if unit != "bytes" or done - shown >= _STEP_BYTES or done == total:
                shown = done
                advance(done)

        yield progress


def _addresses(stack: ExitStack, words: tuple[str, ...], urls: str | None) -> Iterator[Item]:
    """The addresses on the command line, and those in the file."""
    yield from map(pagetext.address_of, words)
    if urls is not None:
        for batch, _ in lines.batches(lines.open_file(stack, urls)):
            yield from (pagetext.address_of(os.fsdecode(line)) for line in batch)


def _sources(
    stack: ExitStack, words: tuple[str, ...], target: Path, *, by_fingerprint: bool
) -> list[importing.Source]:
    """The sources that the words name; all WARC files are one, and so are those of another store."""
    files: list[str | BinaryIO] = []
    caches: list[importing.Source] = []
    for word in words:
        path = Path(word)
        if word == "-" or path.is_fifo():
            files.append(lines.open_file(stack, word))
        elif opening.is_store(path):
            if path.resolve() == target.resolve():
                raise ConfigError("source", word, "another store than the one to import into")
            files += [str(file) for file in sorted(path.glob("*.warc*"))]
        elif path.is_file() and warcs.is_warc(path):
            files.append(word)
        else:
            caches.append(_scrapy_cache(path, by_fingerprint=by_fingerprint))
    return [warcs.WarcFiles(files), *caches] if files else caches


def _scrapy_cache(path: Path, *, by_fingerprint: bool) -> importing.Source:
    try:
        from tbloom.scrapy.pages.caches import caches_at  # noqa: PLC0415 - it needs Scrapy
    except ModuleNotFoundError:
        cache, more = None, " (Scrapy's caches need: pip install 'tbloom[scrapy]')"
    else:
        cache, more = caches_at(path, by_fingerprint=by_fingerprint), ", or a cache of Scrapy"
    if cache is not None:
        return cache
    if not path.exists():
        raise CommandError(f"{path}: {os.strerror(errno.ENOENT)}")
    raise ConfigError("source", str(path), f"a WARC file, a page store{more}")
