"""Pages, and the figures of a store, as text; and the arguments that name them."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from contextlib import contextmanager
from datetime import datetime, timezone
from http.client import responses
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tbloom.cli.kit import formats, output
from tbloom.errors import ConfigError
from tbloom.items import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tbloom.items import Item
    from tbloom.pages import Page, PagesInfo
    from tbloom.pages.info import PagesSlice

F = TypeVar("F", bound="Callable[..., Any]")
_KEY = "key:"
path_argument = click.argument("path", type=click.Path())
#: A page's URL, or key:HEX.
address_argument = click.argument("url", metavar="URL")


def codec_option(default: str | None, shown: str) -> Callable[[F], F]:
    """--codec."""
    return click.option(
        "--codec",
        type=click.Choice(["gzip", "zstd", "identity"]),
        default=default,
        help=f"how pages are compressed ({shown})",
    )


def address_of(text: str) -> Item:
    """The address that a word means: a URL, or the bytes of ``key:HEX``."""
    if not text.startswith(_KEY):
        return text
    try:
        return bytes.fromhex(text.removeprefix(_KEY))
    except ValueError:
        raise ConfigError("url", text, "hex digits after key:") from None


def as_word(address: Item) -> str:
    """An address as one word: a printable URL as it is, everything else as ``key:HEX``."""
    return address if isinstance(address, str) and address.isprintable() else _key(address)


def as_line(page: Page) -> str:
    """Time of fetching, status, size, URL; and the address, where it is not the URL."""
    url, address = formats.printable(page.url), as_word(page.address)
    at = page.at.astimezone(timezone.utc)
    line = f"{at:%Y-%m-%dT%H:%M:%SZ} {page.status} {len(page.body):>10} {url}"
    return line if address == url else f"{line} {address}"


def as_json_line(page: Page) -> str:
    """All but the body, in a line of ASCII, which no terminal takes for escapes."""
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


def http_head(page: Page) -> bytes:
    """Status line and headers, as ``curl -i`` writes them."""
    status = f"HTTP/1.1 {page.status} {responses.get(page.status, '')}".rstrip()
    lines = [status, *(f"{name}: {value}" for name, value in page.headers), ""]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def as_dict(info: PagesInfo) -> dict[str, Any]:
    """The fields of ``stats()``, with totals."""
    totals = ("pages", "records", "segments", "bytes")
    return {**dataclasses.asdict(info), **{name: getattr(info, name) for name in totals}}


def as_text(info: PagesInfo) -> str:
    """Slices and totals, in 80 columns."""
    kept = "for ever"
    if info.granularity is not None:
        kept = f"in slices of {info.granularity!r} ({info.tz})"
    lines = [output.sentence(f"{info.path}: {formats.counted(info.pages, 'page')}, kept {kept}")]
    if info.granularity is not None and info.slices:
        lines += ["", _slices(info)]
    return "\n".join([*lines, "", output.sentence(_totals(info))])


def _totals(info: PagesInfo) -> str:
    size = formats.size(info.bytes - info.index_bytes)
    each = f"; in all {formats.size(info.bytes / info.pages)} per page" if info.pages else ""
    return (
        f"{formats.counted(info.records, 'record')} in {formats.counted(info.segments, 'segment')}, {size}; "
        f"index {formats.size(info.index_bytes)}{each}"
    )


def _slices(info: PagesInfo) -> str:
    def row(label: str, expires: str, part: PagesInfo | PagesSlice, size: int) -> dict[str, str]:
        counts = {name: f"{getattr(part, name):,}" for name in ("pages", "records", "segments")}
        return {"slice": label, "expires": expires, **counts, "size": formats.size(size)}

    rows = [row(each.label, _moment(each.expires), each, each.bytes) for each in info.slices]
    totals = row("window", "", info, sum(each.bytes for each in info.slices))
    return output.table(rows, left=("slice", "expires"), totals=totals)


def _moment(at: datetime | None) -> str:
    """A time, without the hour if it is midnight."""
    return formats.moment(at).removesuffix(" 00:00")


@contextmanager
def warnings_printed() -> Iterator[list[str]]:
    """Prints warnings of the store on stderr, and yields the list of them."""
    printer = _Printer()
    logger = logging.getLogger("tbloom.pages")
    logger.addHandler(printer)
    try:
        yield printer.texts
    finally:
        logger.removeHandler(printer)


class _Printer(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(formats.printable(record.getMessage()))
        sys.stderr.write(f"tbloom: {self.texts[-1]}\n")


def _key(address: Item) -> str:
    return f"{_KEY}{encode(address).hex()}"
