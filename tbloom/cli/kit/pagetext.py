"""Pages, and what there is of them, as ``tbloom pages`` reads and writes them."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from contextlib import contextmanager
from datetime import datetime, timezone
from http.client import responses
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tbloom.cli.kit import words
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from tbloom.items import Item
    from tbloom.pages import Page, PagesInfo

_KEY = "key:"


def address(text: str) -> Item:
    """What ``as_word`` has written, or a user."""
    if not text.startswith(_KEY):
        return text
    try:
        return bytes.fromhex(text.removeprefix(_KEY))
    except ValueError:
        raise ConfigError("url", text, "hex digits after key:") from None


def as_word(address: Item) -> str:
    """What gets a page, as one word: its URL, or ``key:HEX`` where that is something else, or not for a terminal."""
    return address if isinstance(address, str) and address.isprintable() else _key(address)


def as_line(page: Page) -> str:
    """When it was fetched, status, size, URL; and its address, where that is another one."""
    url, address = words.printable(page.url), as_word(page.address)
    at = page.at.astimezone(timezone.utc)
    line = f"{at:%Y-%m-%dT%H:%M:%SZ} {page.status} {len(page.body):>10} {url}"
    return line if address == url else f"{line} {address}"


def as_json(page: Page) -> str:
    """All but the body, in a line; in ASCII, so that nothing in it is for a terminal to obey."""
    told = {
        "url": page.url,
        "key": None if page.key is None else page.key.hex(),
        "status": page.status,
        "headers": page.headers,
        "at": page.at.isoformat(),
        "bytes": len(page.body),
        "fields": page.fields,
    }
    return json.dumps(told)


def http_head(page: Page) -> bytes:
    """Status line and headers, as ``curl -i`` writes them."""
    status = f"HTTP/1.1 {page.status} {responses.get(page.status, '')}".rstrip()
    lines = [status, *(f"{name}: {value}" for name, value in page.headers), ""]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def write_lines(lines: Iterable[str]) -> None:
    """Writes them to standard output as they come, in UTF-8, as URLs are."""
    for line in lines:
        if sys.stdout is not None:  # a shell may have closed it
            sys.stdout.buffer.write(f"{line}\n".encode())


def as_dict(info: PagesInfo) -> dict[str, Any]:
    """What ``stats()`` tells, with its sums."""
    sums = ("pages", "records", "segments", "bytes")
    return {**dataclasses.asdict(info), **{name: getattr(info, name) for name in sums}}


def as_table(info: PagesInfo) -> RenderableType:
    """Slices and sums, in 80 columns."""
    kept = "for ever"
    if info.granularity is not None:
        kept = f"in slices of {info.granularity!r} ({info.tz})"
    rows: list[RenderableType] = [
        Text(f"{words.printable(info.path)}: {words.counted(info.pages, 'page')}, kept {kept}")
    ]
    if info.granularity is not None and info.slices:
        rows += [Text(), _slices(info)]
    return Group(*rows, Text(), Text(_sums(info)))


def _sums(info: PagesInfo) -> str:
    size = words.size(info.bytes - info.index_bytes)
    each = f", {words.size(info.bytes / info.pages)} per page" if info.pages else ""
    return (
        f"{words.counted(info.records, 'record')} in {words.counted(info.segments, 'segment')}, {size}; "
        f"index {words.size(info.index_bytes)}{each}"
    )


def _slices(info: PagesInfo) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="bold")
    table.add_column("slice", "window", no_wrap=True)
    table.add_column("expires", no_wrap=True)
    size = sum(slice.bytes for slice in info.slices)
    for name in ("pages", "records", "segments"):
        table.add_column(name, f"{getattr(info, name):,}", justify="right")
    table.add_column("size", words.size(size), justify="right")
    for slice in info.slices:
        numbers = [f"{number:,}" for number in (slice.pages, slice.records, slice.segments)]
        table.add_row(slice.label, _moment(slice.expires), *numbers, words.size(slice.bytes))
    return table


def _moment(at: datetime | None) -> str:
    """Midnight need not be said."""
    return words.moment(at).removesuffix(" 00:00")


@contextmanager
def warnings_told() -> Iterator[list[str]]:
    """What the store, and warcio, warn of goes to standard error, and into the list."""
    told = _Teller()
    loggers = [logging.getLogger(name) for name in ("tbloom.pages", "warcio")]
    for logger in loggers:
        logger.addHandler(told)
    try:
        yield told.texts
    finally:
        for logger in loggers:
            logger.removeHandler(told)


class _Teller(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(words.printable(record.getMessage()))
        sys.stderr.write(f"tbloom: {self.texts[-1]}\n")


def _key(address: Item) -> str:
    return f"{_KEY}{(address.encode() if isinstance(address, str) else address).hex()}"
