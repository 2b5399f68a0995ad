"""``tbloom pages``: any number of pages by URL, in WARC files."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click

from tbloom.cli.commands import pagetext, warcs
from tbloom.cli.kit import formats, numbers, options, output, progress, streams
from tbloom.cli.kit.command import Group
from tbloom.cli.kit.errors import CommandFailed

#: A little more than a page may have.
_MOST_BYTES = (1 << 30) + 1
#: Commands that continue after pages that they can't read.
_WARNING = {"ls", "import", "export", "rebuild"}


class _Warnings(logging.Handler):
    """Print warnings of the store on stderr, and count them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        output.say(f"tbloom: {record.getMessage()}")


class _Pages(Group):
    def invoke(self, ctx: click.Context) -> Any:
        warnings, logger = _Warnings(), logging.getLogger("tbloom.pages")
        logger.addHandler(warnings)
        try:
            code = super().invoke(ctx)
        finally:
            logger.removeHandler(warnings)
        return 1 if warnings.count and ctx.invoked_subcommand in _WARNING else code


@click.group(
    cls=_Pages, extra="pages", example="tbloom pages ls pages --long", no_args_is_help=False
)
def command() -> None:
    """Store pages by URL in WARC files, and read them.

    A store with slices forgets the pages of expired slices. One process writes at a time; others can read meanwhile.
    """


command.add_command(warcs.import_pages)
command.add_command(warcs.export)


def _header(text: str) -> tuple[bytes, bytes]:
    """Return a header's name and value, byte for byte as typed."""
    name, colon, value = os.fsencode(text).partition(b":")
    if not colon:
        raise click.BadParameter(f"expected 'Name: value', got {text!r}")
    return name, value


@command.command(example="tbloom pages put pages https://example.com/ page.html")
@pagetext.path_argument
@click.argument("url", metavar="URL")
@click.argument("body", metavar="[FILE]", default="-", type=click.File("rb"))
@click.option("--status", type=int, metavar="N", default=200, help="HTTP status (200)")
@click.option(
    "--header",
    "headers",
    type=_header,
    multiple=True,
    metavar="'NAME: VALUE'",
    help="an HTTP header; may be given several times",
)
@click.option("--at", type=numbers.time, help="when it was fetched (now)")
@pagetext.new_store
def put(
    *,
    path: str,
    url: str,
    body: BinaryIO,
    status: int,
    headers: tuple[tuple[bytes, bytes], ...],
    at: datetime | None,
    **like: Any,
) -> None:
    """Store a page, in place of an earlier one of this URL.

    The URL is http:// or https://, and not normalized. The body is read from the file, or from standard input.
    """
    from tbloom.pages.config import from_arguments  # noqa: PLC0415 - the help does without isal
    from tbloom.pages.page import Page, checked  # noqa: PLC0415 - the same

    given: Any = (url, status, headers, body.read(_MOST_BYTES), at or datetime.now(UTC))
    page = checked(Page(*given))  # before a store is made
    if config := from_arguments(like["granularity"], like["slices"], like["tz"]):
        config.slice_of(page.at)  # raises where its day has left
    with pagetext.stores()(path, **like) as store:
        store.put_many([page])


@command.command(example="tbloom pages get pages https://example.com/ > page.html")
@pagetext.path_argument
@pagetext.address_argument
@click.option("--headers", is_flag=True, help="write status line and headers first")
def get(*, path: str, url: str, headers: bool) -> None:
    """Write the body of a page to standard output, as it was stored.

    Exit code 1: the store has no such page.
    """
    from tbloom.pages.record import http_head  # noqa: PLC0415 - the help does without isal

    with pagetext.stores()(path, readonly=True) as store:
        found = store.get(pagetext.address_of(url))
    if found is None:
        raise _none(path, url)
    head = http_head(found.status, found.headers) if headers else b""
    streams.write(head + found.body)


@command.command(example="tbloom pages ls pages --long")
@pagetext.path_argument
@click.option(
    "--long",
    is_flag=True,
    help="time of fetching, status, size of the body (bytes), URL, and key if there is one",
)
@options.as_json
def ls(*, path: str, long: bool) -> None:
    """Print the URL of each page.

    A page with a key, or with a URL that is not printable, is shown as key:HEX, which get and delete take too. With --json,
    each page is a line, without its body. Exit code 1: a record that it reads is damaged or missing; only --long and --json
    read bodies.
    """
    with pagetext.stores()(path, readonly=True) as store:
        if output.is_on("json"):
            lines = map(pagetext.as_json_line, store.pages())
        elif long:
            lines = map(pagetext.as_line, store.pages())
        else:  # without reading the bodies
            lines = map(pagetext.as_word, store)
        for line in lines:
            sys.stdout.buffer.write(f"{line}\n".encode())


@command.command(example="tbloom pages delete pages https://example.com/")
@pagetext.path_argument
@pagetext.address_argument
def delete(*, path: str, url: str) -> None:
    """Forget a page.

    Exit code 1: the store has no such page.
    """
    address = pagetext.address_of(url)
    # Opened for writing, a missing store would be created.
    pagetext.stores()(path, readonly=True).close()
    with pagetext.stores()(path) as store:
        if not store.delete(address):
            raise _none(path, url)


@command.command(example="tbloom pages verify pages")
@pagetext.path_argument
@options.quiet
def verify(path: str) -> int:
    """Read all records, and print the problems of records and index.

    Nothing is changed. Exit code 1: there are problems.
    """
    with pagetext.stores()(path, readonly=True) as store:
        report = store.verify()
    if report.problems:
        output.line(output.lines(report.problems))
    counted = [formats.counted(report.pages, "page"), formats.counted(report.records, "record")]
    problems = formats.counted(len(report.problems), "problem")
    output.summary(f"{', '.join(counted)}: {problems}")
    return 1 if report.problems else 0


@command.command(example="tbloom pages rebuild pages")
@pagetext.path_argument
@options.quiet
def rebuild(path: str) -> None:
    """Rebuild the index from the WARC files.

    The old index stays until the new one is complete. Only a record whose end was not written is cut off. Exit code 1: a file
    has bytes that can't be read, which stay.
    """
    total = sum(file.stat().st_size for file in Path(path).glob("*.warc.*"))
    with progress.bar("bytes", total) as advance:
        info = pagetext.stores().rebuild(path, progress=advance)
    output.summary(pagetext.totals(info))


@command.command(example="tbloom pages stats pages")
@pagetext.path_argument
@options.as_json
def stats(path: str) -> None:
    """Show pages, files and bytes, slice by slice."""
    with pagetext.stores()(path, readonly=True) as store:
        info = store.stats()
    output.show(dataclasses.asdict(info), lambda: pagetext.as_text(info))


def _none(path: str, url: str) -> CommandFailed:
    return CommandFailed(f"no page {url!r} in {path!r}")
