"""``tbloom pages``: any number of pages by URL, in WARC files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click

from tbloom.cli.commands import pagetext, warcs
from tbloom.cli.kit import formats, interrupts, numbers, options, output, streams
from tbloom.cli.kit.command import Group, at_most_one
from tbloom.cli.kit.errors import CommandFailed
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import StoreLocked
from tbloom.pages import PageStore, calendar, config, opening, page

_READ_BYTES = 1 << 20
#: Commands that warn of pages that they can't read, and go on.
_WARNING = {"ls", "import", "export"}


class _Pages(Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            with pagetext.warnings_printed() as warnings:
                code = super().invoke(ctx)
        except StoreLocked as error:  # without the advice to open the store readonly
            raise StoreLocked(error.path, error.pid, otherwise="") from None
        return 1 if warnings and ctx.invoked_subcommand in _WARNING else code


@click.group(cls=_Pages)
def command() -> None:
    """Stores pages by URL in WARC files, and reads them.

    A store with slices forgets the pages of expired slices. One process writes at a time; others can read meanwhile.
    """


command.add_command(warcs.import_pages)
command.add_command(warcs.export)


def _header(text: str) -> tuple[bytes, bytes]:
    """A header's name and value, byte for byte as typed."""
    name, colon, value = os.fsencode(text).partition(b":")
    if not colon:
        raise click.BadParameter(f"expected 'Name: value', got {text!r}")
    return name, value


@command.command(example="tbloom pages put pages https://example.com/ page.html")
@pagetext.path_argument
@click.argument("url", metavar="URL")
@click.argument("body", metavar="[FILE]", required=False, type=click.Path())
@click.option("--status", type=int, metavar="N", default=200, help="HTTP status (200)")
@click.option(
    "--header",
    "headers",
    type=_header,
    multiple=True,
    metavar="'NAME: VALUE'",
    help="an HTTP header; may be given several times",
)
@click.option(
    "--at",
    type=numbers.moment,
    metavar="TIME",
    help="when it was fetched, such as 2026-11-16T12:00:00Z (now)",
)
@pagetext.codec_option("gzip", "gzip")
@options.slices("store", "pages are kept for ever")
def put(*, path: str, url: str, body: str | None, codec: str, **given: Any) -> None:
    """Stores a page, in place of an earlier one of this URL.

    The URL is http:// or https://, and not normalized. The body is read from the file, or from standard input.
    """
    like = {name: given.pop(name) for name in ("granularity", "slices", "tz")}
    given["at"] = given["at"] or calendar.now()
    # All arguments are checked first, so that a wrong one creates no store.
    page.check_page(url, b"", **given)
    (config.given(**like) or config.PagesConfig(None)).slice_of(given["at"])
    opening.folder(path)
    content = _body(body or "-")
    page.check_page(url, content, **given)
    with PageStore(path, **like, codec=codec) as store, interrupts.step():
        store.put(url, content, **given)


def _body(name: str) -> bytes:
    """The file's bytes; of a file that is too large, a little more than a page may have."""
    chunks, size = [], 0
    with ExitStack() as stack:
        file = streams.open_file(stack, name)
        while size <= page.MAX_BYTES and (chunk := file.read(_READ_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


@command.command(example="tbloom pages get pages https://example.com/ > page.html")
@pagetext.path_argument
@pagetext.address_argument
@click.option(
    "--decoded",
    is_flag=True,
    help="undo the Content-Encoding gzip or deflate; Scrapy, for one, stores bodies encoded",
)
@click.option("--headers", is_flag=True, help="write status line and headers first")
@click.option("--json", "as_json", is_flag=True, help="write all but the body, as JSON")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    default="-",
    help="where to write it (standard output)",
)
def get(*, path: str, url: str, output: str, decoded: bool, headers: bool, as_json: bool) -> None:
    """Writes the body of a page to standard output, as it was stored.

    Exit code 1: the store has no such page.
    """
    at_most_one(headers=headers, json=as_json)
    at_most_one(json=as_json, decoded=decoded)
    with _reading(path) as store:
        found = store.get(pagetext.address_of(url))
    if found is None:
        raise _none(path, url)
    if as_json:
        content = f"{pagetext.as_json_line(found)}\n".encode()
    else:
        content = pagetext.http_head(found) if headers else b""
        content += found.decoded() if decoded else found.body
    with streams.writing(output) as file:
        file.write(content)


@command.command(example="tbloom pages ls pages --long")
@pagetext.path_argument
@click.option(
    "--long",
    is_flag=True,
    help="time of fetching, status, size of the body (bytes), URL, and key if there is one",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="all but the bodies, as a line of JSON for each page",
)
def ls(*, path: str, long: bool, as_json: bool) -> None:
    """Prints the URL of each page.

    A page with a key, or with a URL that is not printable, is shown as key:HEX, which get and delete take too. Exit code
    1: a record that it reads is damaged or missing; only --long and --json read bodies.
    """
    at_most_one(long=long, json=as_json)
    with _reading(path) as store:
        if long or as_json:
            printed: Iterator[str] = map(
                pagetext.as_json_line if as_json else pagetext.as_line, store.pages()
            )
        else:  # without reading the bodies
            printed = map(pagetext.as_word, store)
        for line in printed:
            sys.stdout.buffer.write(f"{line}\n".encode())


@command.command(example="tbloom pages delete pages https://example.com/")
@pagetext.path_argument
@pagetext.address_argument
def delete(*, path: str, url: str) -> None:
    """Forgets a page.

    Exit code 1: the store has no such page.
    """
    address = pagetext.address_of(url)
    with _reading(path):  # opened for writing, a missing store would be created
        pass
    with PageStore(path) as store, interrupts.step():
        if not store.delete(address):
            raise _none(path, url)


@command.command(example="tbloom pages verify pages")
@pagetext.path_argument
@options.as_json
@options.quiet
def verify(*, path: str, as_json: bool, quiet: bool) -> int:
    """Reads all records, and prints the problems of records and index.

    Nothing is changed. Exit code 1: there are problems.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with _reading(path) as store, reporter.count("Verifying", None, "bytes") as progress:
        report = store.verify(progress)
    if as_json:
        found = {"pages": report.pages, "records": report.records, "problems": report.problems}
        output.print_json(found)
    else:
        for problem in report.problems:
            output.line(formats.printable(problem))
    problems = len(report.problems)
    reporter.say(
        f"{formats.counted(report.pages, 'page')}, {formats.counted(report.records, 'record')}: "
        f"{formats.counted(problems, 'problem') if problems else 'no problems'}"
    )
    return 1 if problems else 0


@command.command(example="tbloom pages rebuild pages")
@pagetext.path_argument
@options.quiet
def rebuild(*, path: str, quiet: bool) -> None:
    """Rebuilds the index from the WARC files.

    The old index stays until the new one is complete.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with reporter.count("Rebuilding", None, "bytes") as progress, interrupts.held_back() as look:

        def advance(done: int, total: int) -> None:
            progress(done, total)
            look()

        info = PageStore.rebuild(path, advance)
    reporter.say(
        f"{formats.counted(info.pages, 'page')}, {formats.counted(info.records, 'record')} in "
        f"{formats.counted(info.segments, 'segment')}; index {formats.size(info.index_bytes)}"
    )


@command.command(example="tbloom pages stats pages")
@pagetext.path_argument
@options.as_json
def stats(*, path: str, as_json: bool) -> None:
    """Shows pages, files and bytes, slice by slice."""
    with _reading(path) as store:
        info = store.stats()
    output.show(pagetext.as_dict(info), lambda: pagetext.as_text(info), as_json=as_json)


def _reading(path: str) -> PageStore:
    return PageStore(path, readonly=True)


def _none(path: str, url: str) -> CommandFailed:
    return CommandFailed(f"no page {url!r} in {path!r}")
