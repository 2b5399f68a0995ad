"""``tbloom pages``: pages of any number, addressed by URL, in WARC files."""

from __future__ import annotations

import argparse
import os
import re
from datetime import datetime
from typing import TYPE_CHECKING

from tbloom.cli.kit import nesting, pagetext, pageverbs
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the user knows arguments by.
_SHOWN = {
    "path": "PATH",
    "url": "URL",
    "body": "FILE",
    "headers": "--header",
    **{name: f"--{name}" for name in ("status", "at", "granularity", "slices", "tz")},
}
_VERBS = {
    "put": pageverbs.put,
    "get": pageverbs.get,
    "ls": pageverbs.list_pages,
    "delete": pageverbs.delete,
    "verify": pageverbs.verify,
    "rebuild": pageverbs.rebuild,
    "stats": pageverbs.stats,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands, each with its own."""
    parser.description = (
        f"{parser.description} A store that has slices forgets by itself what is older. One process writes "
        "at a time; reading goes on beside it."
    )
    verb = nesting.verbs_of(
        parser,
        lambda made: made.add_argument("path", metavar="PATH", help="the store's folder"),
    )
    _add_putting(verb)
    _add_getting(verb)
    _add_listing(verb)
    parser = verb("delete", "forget a page", "tbloom pages delete pages https://example.com/")
    _add_address(parser)
    parser = verb(
        "verify",
        "read all records, and print what is wrong with them or with the index",
        "tbloom pages verify pages",
        " Nothing is changed. Exit code 1: something is wrong.",
    )
    _add_quiet(parser)
    parser = verb(
        "rebuild",
        "make the index anew, from the WARC files alone",
        "tbloom pages rebuild pages",
        " Until that is done, the old one stays.",
    )
    _add_quiet(parser)
    parser = verb(
        "stats", "show pages, files and bytes, slice by slice", "tbloom pages stats pages"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Does what the verb says."""
    try:
        with pagetext.warnings_told() as warnings:
            code = _VERBS[arguments.verb](arguments)
    except ConfigError as error:
        known = _SHOWN.get(error.argument, error.argument)
        if error.value is None:
            raise CommandError(f"{known}: expected {error.expected}") from None
        raise ConfigError(known, error.value, error.expected) from None
    except StoreLocked as error:  # there is no verb that would write and need not
        raise StoreLocked(error.path, error.pid, otherwise="") from None
    # Of pages that could not be read, ls only warns.
    return 1 if warnings and arguments.verb == "ls" else code


def _add_putting(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "put",
        "store a page, in the place of the one that this URL has",
        "tbloom pages put pages https://example.com/ page.html",
    )
    parser.add_argument("url", metavar="URL", help="http:// or https://, taken as it is")
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
    group = parser.add_argument_group("a store that is not there yet")
    group.add_argument(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (pages are kept for ever)",
    )
    group.add_argument("--slices", type=int, metavar="N", help="how many slices are kept")
    group.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)")


def _add_getting(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "get",
        "write the body of a page to standard output, as it was put",
        "tbloom pages get pages https://example.com/ > page.html",
        " Exit code 1: there is no such page.",
    )
    _add_address(parser)
    parser.add_argument(
        "--decoded",
        action="store_true",
        help="without its Content-Encoding, gzip or deflate: Scrapy, for one, stores bodies as they came",
    )
    also = parser.add_mutually_exclusive_group()
    also.add_argument("--headers", action="store_true", help="status line and headers come first")
    also.add_argument("--json", action="store_true", help="all but the body, as JSON")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="where to write it (standard output)"
    )


def _add_listing(verb: Callable[..., argparse.ArgumentParser]) -> None:
    parser = verb(
        "ls",
        "print the URL of each page",
        "tbloom pages ls pages --long",
        " Of a page that has a key in its place, or a URL that no terminal should get, key:HEX, which get "
        "and delete take as well. Exit code 1: something that it reads is damaged, or missing (without --long and --json, no bodies).",
    )
    also = parser.add_mutually_exclusive_group()
    also.add_argument(
        "--long",
        action="store_true",
        help="when it was fetched, its status, bytes of its body, URL, and key if it has one",
    )
    also.add_argument(
        "--json", action="store_true", help="all but the bodies, a line of JSON for each"
    )


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="URL", help="the page's URL, or key:HEX (see ls)")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def _header(text: str) -> tuple[bytes, bytes]:
    """As it was typed, byte for byte."""
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
