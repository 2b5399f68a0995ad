"""Pages, and the figures of a store, as text; and the arguments that name them."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING

import click

from tbloom.arguments import encode
from tbloom.cli.kit import formats, options, output
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from tbloom.arguments import Item
    from tbloom.pages import Page, PagesInfo, PagesSlice, PageStore

_KEY = "key:"
_CODECS = click.Choice(["gzip", "zstd"])
path_argument: options.Decorator = click.argument("path", type=click.Path())
#: A page's URL, or key:HEX.
address_argument: options.Decorator = click.argument("url", metavar="URL")
#: The parameters of a new store.
new_store: options.Decorator = options.all_of(
    click.option("--codec", type=_CODECS, default="gzip", help="how pages are compressed (gzip)"),
    options.slices("store", "pages are kept for ever"),
)


def stores() -> type[PageStore]:
    """Return the class. It is imported here because a command's help does without what it needs."""
    from tbloom.pages import PageStore  # noqa: PLC0415 - needs isal

    return PageStore


def address_of(text: str) -> Item:
    """Return the address that a word means: a URL, or the bytes of ``key:HEX``."""
    if not text.startswith(_KEY):
        return text
    try:
        return bytes.fromhex(text.removeprefix(_KEY))
    except ValueError:
        raise ConfigError("url", text, "hex digits after key:") from None


def as_word(address: Item) -> str:
    """Return an address as one word: a printable URL as it is, everything else as ``key:HEX``."""
    if isinstance(address, str) and address.isprintable():
        return address
    return f"{_KEY}{encode(address).hex()}"


def as_line(page: Page) -> str:
    """Return time of fetching, status, size and URL, and the address if it is not the URL."""
    url, address = formats.printable(page.url), as_word(page.address)
    at = page.at.astimezone(UTC)
    line = f"{at:%Y-%m-%dT%H:%M:%SZ} {page.status} {len(page.body):>10} {url}"
    return line if address == url else f"{line} {address}"


def as_json_line(page: Page) -> str:
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


def as_text(info: PagesInfo) -> str:
    """Return slices and totals, in 80 columns."""
    rows = [_row(each.label, formats.moment(each.expires), each) for each in info.slices]
    lines = [output.sentence(f"{info.path}: {totals(info)}")]
    if info.granularity is not None and rows:
        sums = _row("window", "", info)
        lines += ["", output.table(rows, left=("slice", "expires"), totals=sums)]
    return "\n".join(lines)


def totals(info: PagesInfo) -> str:
    """Return the numbers of pages, records, files and bytes."""
    counted = [
        formats.counted(getattr(info, f"{noun}s"), noun) for noun in ("page", "record", "segment")
    ]
    index = formats.size(info.index_bytes)
    return f"{', '.join(counted)}, {formats.size(info.bytes - info.index_bytes)}; index {index}"


def _row(label: str, expires: str, part: PagesInfo | PagesSlice) -> dict[str, str]:
    counts = {name: f"{getattr(part, name):,}" for name in ("pages", "records", "segments")}
    return {"slice": label, "expires": expires, **counts, "size": formats.size(part.bytes)}
