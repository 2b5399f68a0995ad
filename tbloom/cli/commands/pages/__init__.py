"""``tbloom pages``: any number of pages by URL, in WARC files."""

from __future__ import annotations

import argparse
import os
import re
from datetime import datetime
from typing import TYPE_CHECKING

from tbloom.cli.commands.pages import exporting, importing, planning, rendering, verbs
from tbloom.cli.kit import subcommands
from tbloom.errors import StoreLocked
from tbloom.pages.members import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable

#: The arguments, by the names of their parameters.
_SHOWN = {
    "path": "PATH",
    "url": "URL",
    "body": "FILE",
    "source": "SOURCE",
    "headers": "--header",
    **{name: f"--{name}" for name in ("status", "at", "granularity", "slices", "tz")},
}
_VERBS = {
    "put": verbs.put,
    "import": importing.run,
    "export": exporting.run,
    "get": verbs.get,
    "ls": verbs.list_pages,
    "delete": verbs.delete,
    "verify": verbs.verify,
    "rebuild": verbs.rebuild,
    "stats": verbs.stats,
    "plan": planning.run,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands, with their arguments."""
    parser.description = (
        f"{parser.description} A store with slices forgets the pages of expired slices. One process writes "
        "at a time; others can read meanwhile."
    )
    verb = subcommands.adder(
        parser,
        lambda made: made.add_argument("path", metavar="PATH", help="the store's folder"),
    )
    _add_putting(verb)
    _add_importing(verb)
    _add_exporting(verb)
    _add_getting(verb)
    _add_listing(verb)
    parser = verb("delete", "forget a page", "tbloom pages delete pages https://example.com/")
    _add_address(parser)
    parser = verb(
        "verify",
        "read all records, and print the problems of records and index",
        "tbloom pages verify pages",
        " Nothing is changed. Exit code 1: there are problems.",
    )
    _add_quiet(parser)
    parser = verb(
        "rebuild",
        "rebuild the index from the WARC files",
        "tbloom pages rebuild pages",
        " The old index stays until the new one is complete.",
    )
    _add_quiet(parser)
    parser = verb(
        "stats", "show pages, files and bytes, slice by slice", "tbloom pages stats pages"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    planning.add(verb)


def run(arguments: argparse.Namespace) -> int:
    """Runs a sub-command."""
    try:
        with rendering.warnings_printed() as warnings:
            code = subcommands.run(_VERBS[arguments.verb], arguments, _SHOWN)
    except StoreLocked as error:  # without the advice to open the store readonly
        raise StoreLocked(error.path, error.pid, otherwise="") from None
    # For pages that can't be read, these only warn.
    return 1 if warnings and arguments.verb in {"ls", "import", "export"} else code


def _add_putting(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "put",
        "store a page, in place of an earlier one of this URL",
        "tbloom pages put pages https://example.com/ page.html",
    )
    parser.add_argument("url", metavar="URL", help="http:// or https://; it is not normalized")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the body; - or none: standard input"
    )
    parser.add_argument("--status", type=int, metavar="N", default=200, help="HTTP status (200)")
    parser.add_argument(
        "--header",
        dest="headers",
        type=_header,
        action="append",
        metavar="'NAME: VALUE'",
        help="an HTTP header; may be given several times",
    )
    parser.add_argument(
        "--at",
        type=_time,
        metavar="TIME",
        help="when it was fetched, such as 2026-11-16T12:00:00Z (now)",
    )
    _add_codec(parser, "gzip", "gzip")
    subcommands.add_slices(parser, "store", "pages are kept for ever")


def _add_importing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "import",
        "store the pages of WARC files, of another store, or of Scrapy's cache",
        "tbloom pages import pages crawl.warc.gz",
        " A page that the store has, fetched at the same time or later, stays; so after an interruption, the same "
        "command goes on. Damaged places are printed. Exit code 1: there are some.",
    )
    parser.add_argument(
        "files",
        metavar="SOURCE",
        nargs="+",
        help="a WARC file (- for standard input), a store's folder, or a folder or database of Scrapy's HTTP cache",
    )
    parser.add_argument(
        "--by-fingerprint",
        action="store_true",
        help="Scrapy's cache is of a project with a REQUEST_FINGERPRINTER_CLASS of its own",
    )
    _add_quiet(parser)
    _add_codec(parser, "gzip", "gzip")
    subcommands.add_slices(parser, "store", "pages are kept for ever")


def _add_exporting(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "export",
        "write pages into a WARC file of their own (all pages)",
        "tbloom pages export pages -o june.warc.gz --since 2026-06-01T00:00:00Z",
        " Exit code 1: the store has no page of a URL, or one can't be read.",
    )
    parser.add_argument("names", metavar="URL", nargs="*", help="a page's URL, or key:HEX (see ls)")
    parser.add_argument("--urls", metavar="FILE", help="a URL in each line; -: standard input")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the WARC file; -: standard output"
    )
    for name, help in (("since", "fetched then or later"), ("until", "fetched before")):
        parser.add_argument(f"--{name}", type=_time, metavar="TIME", help=f"only pages {help}")
    _add_codec(parser, None, "zstd for FILE.warc.zst, else gzip")
    _add_quiet(parser)


def _add_getting(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "get",
        "write the body of a page to standard output, as it was stored",
        "tbloom pages get pages https://example.com/ > page.html",
        " Exit code 1: the store has no such page.",
    )
    _add_address(parser)
    parser.add_argument(
        "--decoded",
        action="store_true",
        help="undo the Content-Encoding gzip or deflate; Scrapy, for one, stores bodies encoded",
    )
    also = parser.add_mutually_exclusive_group()
    also.add_argument("--headers", action="store_true", help="write status line and headers first")
    also.add_argument("--json", action="store_true", help="write all but the body, as JSON")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="where to write it (standard output)"
    )


def _add_listing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "ls",
        "print the URL of each page",
        "tbloom pages ls pages --long",
        " A page with a key, or with a URL that is not printable, is shown as key:HEX, which get and "
        "delete take too. Exit code 1: a record that it reads is damaged or missing; only --long and --json read bodies.",
    )
    also = parser.add_mutually_exclusive_group()
    also.add_argument(
        "--long",
        action="store_true",
        help="time of fetching, status, size of the body (bytes), URL, and key if there is one",
    )
    also.add_argument(
        "--json", action="store_true", help="all but the bodies, as a line of JSON for each page"
    )


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="URL", help="the page's URL, or key:HEX (see ls)")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def _add_codec(parser: argparse.ArgumentParser, default: str | None, shown: str) -> None:
    parser.add_argument(
        "--codec",
        choices=[*SUFFIXES],
        default=default,
        help=f"how pages are compressed ({shown})",
    )


def _header(text: str) -> tuple[bytes, bytes]:
    """A header's name and value, byte for byte as typed."""
    name, colon, value = os.fsencode(text).partition(b":")
    if not colon:
        raise argparse.ArgumentTypeError(f"expected 'Name: value', got {text!r}")
    return name, value


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        time = None
    if time is None or time.utcoffset() is None:
        expected = "a time with its zone, such as 2026-11-16T12:00:00Z"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return time
