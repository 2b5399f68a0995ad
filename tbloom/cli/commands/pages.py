"""``tbloom pages``: any number of pages by URL, in WARC files."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.arguments import encode
from tbloom.cli.kit import formats, numbers, options, output, progress, streams
from tbloom.cli.kit.command import Group
from tbloom.cli.kit.errors import CommandFailed
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from tbloom.arguments import Item
    from tbloom.pages import Page, PagesInfo, PagesSlice, PageStore

#: A little more than a page may have, and the characters of a long URL that are printed.
_MOST_BYTES, _SHOWN = (1 << 30) + 1, 200
#: Commands that continue after pages that they can't read.
_WARNING = {"ls", "import", "export", "rebuild"}
_KEY = "key:"
_path_argument: options.Decorator = click.argument("path", type=click.Path())
#: A page's URL, or key:HEX.
_address_argument: options.Decorator = click.argument("url", metavar="URL")
#: The parameters of a new store.
_new_store: options.Decorator = options.all_of(
    click.option(
        "--codec",
        type=click.Choice(["gzip", "zstd"]),
        default="gzip",
        help="how pages are compressed (gzip)",
    ),
    click.option(
        "--granularity",
        metavar="PERIOD",
        help="of a new store: length of a slice: h, d, w, m, or 15min, 3d ... (pages are kept for ever)",
    ),
    click.option(
        "--slices", type=int, metavar="N", help="of a new store: number of slices to keep"
    ),
    click.option(
        "--tz", metavar="ZONE", help="of a new store: time zone, such as Europe/Berlin (UTC)"
    ),
)


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


def _header(text: str) -> tuple[bytes, bytes]:
    """Return a header's name and value, byte for byte as typed."""
    name, colon, value = os.fsencode(text).partition(b":")
    if not colon:
        raise click.BadParameter(f"expected 'Name: value', got {text!r}")
    return name, value


@command.command(example="tbloom pages put pages https://example.com/ page.html")
@_path_argument
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
@_new_store
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
    with _stores()(path, **like) as store:
        store.put_many([page])


@command.command(example="tbloom pages get pages https://example.com/ > page.html")
@_path_argument
@_address_argument
@click.option("--headers", is_flag=True, help="write status line and headers first")
def get(*, path: str, url: str, headers: bool) -> None:
    """Write the body of a page to standard output, as it was stored.

    Exit code 1: the store has no such page.
    """
    from tbloom.pages.record import http_head  # noqa: PLC0415 - the help does without isal

    with _stores()(path, readonly=True) as store:
        found = store.get(_address_of(url))
    if found is None:
        raise _none(path, url)
    head = http_head(found.status, found.headers) if headers else b""
    streams.write(head + found.body)


@command.command(example="tbloom pages ls pages --long")
@_path_argument
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
    with _stores()(path, readonly=True) as store:
        if output.is_on("json"):
            lines = map(_as_json_line, store.pages())
        elif long:
            lines = map(_as_line, store.pages())
        else:  # without reading the bodies
            lines = map(_as_word, store)
        for line in lines:
            sys.stdout.buffer.write(f"{line}\n".encode())


@command.command(example="tbloom pages delete pages https://example.com/")
@_path_argument
@_address_argument
def delete(*, path: str, url: str) -> None:
    """Forget a page.

    Exit code 1: the store has no such page.
    """
    address = _address_of(url)
    # Opened for writing, a missing store would be created.
    _stores()(path, readonly=True).close()
    with _stores()(path) as store:
        if not store.delete(address):
            raise _none(path, url)


@command.command("import", example="tbloom pages import pages crawl.warc.gz")
@_path_argument
@click.argument(
    "sources",
    metavar="SOURCE...",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True),
)
@options.quiet
@click.option("--max-body", type=numbers.size, default="128MB", help="skip longer pages (128MB)")
@_new_store
def import_pages(*, path: str, sources: tuple[str, ...], max_body: int, **like: Any) -> int:
    """Store the pages of WARC files.

    A source is a WARC or WACZ file, or - for standard input. A page that the store has, fetched at the
    same time or later, stays; so after an interruption, the same command goes on. Damaged places are printed, and a file is
    read on behind them; so are sources that can't be read, or not to their end, and the others are imported. Exit code 1:
    there are some.
    """
    from tbloom.pages import PageStore, import_warc  # noqa: PLC0415 - the help does without isal

    total = sum(Path(word).stat().st_size for word in sources if Path(word).is_file())
    given = [sys.stdin.buffer if word == "-" else word for word in sources]
    with progress.bar("bytes", total) as advance, ExitStack() as stack:
        done = import_warc(
            lambda: stack.enter_context(PageStore(path, **like)),
            *given,
            max_body=max_body,
            progress=advance,
        )
    if done.damaged:
        output.line(output.lines(done.damaged))
    skipped, noted = _counted(done.skipped) or "nothing", _counted(done.noted)
    stored = formats.counted(done.stored, "page")
    replaced = f" {done.replaced:,} replaced," if done.replaced else ""
    summary = f"{stored} stored,{replaced} {done.present:,} already there; skipped: {skipped}"
    output.summary(f"{summary}; not skipped: {noted}" if noted else summary)
    return 1 if done.damaged else 0


@command.command(example="tbloom pages export pages -o june.warc.gz --since 2026-06-01")
@_path_argument
@click.argument("names", metavar="[URL]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(),
    required=True,
    help="the WARC file, with zstd if its name is FILE.warc.zst; -: standard output",
)
@click.option("--since", type=numbers.time, help="only pages fetched then or later")
@click.option("--until", type=numbers.time, help="only pages fetched before")
@options.quiet
def export(
    *,
    path: str,
    names: tuple[str, ...],
    target: str,
    since: datetime | None,
    until: datetime | None,
) -> int:
    """Write pages into a WARC file of their own.

    Without URLs, all pages. A URL may be key:HEX (see ls). Headers behind the first 31 KB of a page are left out: other
    tools would not read on. Exit code 1: the store has no page of a URL, one can't be read, or headers were left out.
    """
    from tbloom.pages import PageStore, export_warc  # noqa: PLC0415 - the help does without isal

    urls = [*map(_address_of, names)] or None
    codec = "zstd" if target.endswith(".zst") else "gzip"
    with (
        PageStore(path, readonly=True) as store,
        streams.writing(target) as file,
        progress.bar("pages", len(urls or store)) as advance,
    ):
        within = {"since": since, "until": until}
        done = export_warc(store, file, urls, **within, codec=codec, progress=advance)
    for address in done.missing:
        output.say(f"tbloom: no page {_as_word(address)!r} in {path!r}")
    for address in done.shortened:
        output.say(
            f"tbloom: headers over 31 KB are left out, or the page: {_as_word(address)[:_SHOWN]}"
        )
    output.summary(f"{formats.counted(done.pages, 'page')} written")
    return 1 if done.missing or done.shortened else 0


@command.command(example="tbloom pages verify pages")
@_path_argument
@options.quiet
def verify(path: str) -> int:
    """Read all records, and print the problems of records and index.

    Nothing is changed. Exit code 1: there are problems.
    """
    with _stores()(path, readonly=True) as store:
        report = store.verify()
    if report.problems:
        output.line(output.lines(report.problems))
    counted = [formats.counted(report.pages, "page"), formats.counted(report.records, "record")]
    problems = formats.counted(len(report.problems), "problem")
    output.summary(f"{', '.join(counted)}: {problems}")
    return 1 if report.problems else 0


@command.command(example="tbloom pages rebuild pages")
@_path_argument
@options.quiet
def rebuild(path: str) -> None:
    """Rebuild the index from the WARC files.

    The old index stays until the new one is complete. Only a record whose end was not written is cut off. Exit code 1: a file
    has bytes that can't be read, which stay.
    """
    total = sum(file.stat().st_size for file in Path(path).glob("*.warc.*"))
    with progress.bar("bytes", total) as advance:
        info = _stores().rebuild(path, progress=advance)
    output.summary(_totals(info))


@command.command(example="tbloom pages stats pages")
@_path_argument
@options.as_json
def stats(path: str) -> None:
    """Show pages, files and bytes, slice by slice."""
    with _stores()(path, readonly=True) as store:
        info = store.stats()
    output.show(dataclasses.asdict(info), lambda: _as_text(info))


def _stores() -> type[PageStore]:
    """Return the class. It is imported here because a command's help does without what it needs."""
    from tbloom.pages import PageStore  # noqa: PLC0415 - needs isal

    return PageStore


def _address_of(text: str) -> Item:
    """Return the address that a word means: a URL, or the bytes of ``key:HEX``."""
    if not text.startswith(_KEY):
        return text
    try:
        return bytes.fromhex(text.removeprefix(_KEY))
    except ValueError:
        raise ConfigError("url", text, "hex digits after key:") from None


def _as_word(address: Item) -> str:
    """Return an address as one word: a printable URL as it is, everything else as ``key:HEX``."""
    if isinstance(address, str) and address.isprintable():
        return address
    return f"{_KEY}{encode(address).hex()}"


def _as_line(page: Page) -> str:
    """Return time of fetching, status, size and URL, and the address if it is not the URL."""
    url, address = formats.printable(page.url), _as_word(page.address)
    at = page.at.astimezone(UTC)
    line = f"{at:%Y-%m-%dT%H:%M:%SZ} {page.status} {len(page.body):>10} {url}"
    return line if address == url else f"{line} {address}"


def _as_json_line(page: Page) -> str:
    """Return all but the body, in a line of ASCII, which no terminal takes for escapes."""
    values = {
        "url": page.url,
        "key": None if page.key is None else page.key.hex(),
        "status": page.status,
        "headers": page.headers,
        "at": page.at.isoformat(),
        "bytes": len(page.body),
        "fields": page.fields,
    }
    return json.dumps(values)


def _as_text(info: PagesInfo) -> str:
    """Return slices and totals, in 80 columns."""
    rows = [_row(each.label, formats.moment(each.expires), each) for each in info.slices]
    lines = [output.sentence(f"{info.path}: {_totals(info)}")]
    if info.granularity is not None and rows:
        sums = _row("window", "", info)
        lines += ["", output.table(rows, left=("slice", "expires"), totals=sums)]
    return "\n".join(lines)


def _totals(info: PagesInfo) -> str:
    """Return the numbers of pages, records, files and bytes."""
    counted = [
        formats.counted(getattr(info, f"{noun}s"), noun) for noun in ("page", "record", "segment")
    ]
    index = formats.size(info.index_bytes)
    return f"{', '.join(counted)}, {formats.size(info.bytes - info.index_bytes)}; index {index}"


def _row(label: str, expires: str, part: PagesInfo | PagesSlice) -> dict[str, str]:
    counts = {name: f"{getattr(part, name):,}" for name in ("pages", "records", "segments")}
    return {"slice": label, "expires": expires, **counts, "size": formats.size(part.bytes)}


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())


def _none(path: str, url: str) -> CommandFailed:
    return CommandFailed(f"no page {url!r} in {path!r}")
