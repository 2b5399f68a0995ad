"""Writes pages of a store into a WARC file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import BinaryIO

from tbloom.arguments import Item
from tbloom.errors import ConfigError
from tbloom.pages import record
from tbloom.pages.members import check_codec
from tbloom.pages.page import Page, Pairs
from tbloom.pages.sync import PageStore

#: The limit of a page's HTTP headers, and of its WARC headers (bytes), with room for tbloom's own. FastWARC stops reading a
#: file at a record with more than 32 KB of either.
_MAX_HEAD = (1 << 15) - (1 << 10)
#: The most bytes that are written around a name and its value.
_AROUND = len(record.ORIGINAL) + len(": \r\n")


@dataclass(frozen=True, slots=True)
class PagesExported:
    """The result of an export."""

    #: The number of pages in the file.
    pages: int
    #: The addresses that were asked for, but are not in the store.
    missing: tuple[Item, ...]
    #: The addresses of pages whose headers were cut after 31 KB, because other tools read no more. If the URL alone is that
    #: long, the page is not in the file.
    shortened: tuple[Item, ...]


def export_warc(
    store: PageStore,
    file: BinaryIO,
    urls: Iterable[Item] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    codec: str = "gzip",
    progress: Callable[[int], object] | None = None,
) -> PagesExported:
    """Write pages into a WARC file. ``import_warc`` reads them back byte for byte, and other tools read them too.

    :param file: a binary file, open to write.
    :param urls: the URLs or keys of the pages; None: all pages.
    :param since: only pages that were fetched then or later.
    :param until: only pages that were fetched before.
    :param codec: how they are compressed, as for ``PageStore``.
    :param progress: is called with 1 after each page.
    :raises ConfigError: if an argument is wrong, such as URLs together with a time.
    :raises TBloomError: if one of ``urls`` is damaged.
    """
    if urls is not None and (since or until):
        raise ConfigError("urls", "given", "either URLs, or since and until")
    check_codec(codec)
    info = record.new_id()
    file.write(record.of_info(info, codec))
    missing, shortened = list[Item](), list[Item]()
    pages = store.pages(since, until) if urls is None else _pages(store, urls, missing)
    count = 0
    for page in pages:
        room = _MAX_HEAD - len(page.url.encode()) - 2 * len(page.key or b"")
        short = replace(
            page, headers=_first(page.headers, _MAX_HEAD), fields=_first(page.fields, room)
        )
        if short != page or room < 0:
            shortened.append(page.address)
        if room >= 0:
            file.write(record.of_page(short, None, info, codec))
            count += 1
            if progress:
                progress(1)
    return PagesExported(count, tuple(missing), tuple(shortened))


def _first(pairs: Pairs, room: int) -> Pairs:
    """Return the pairs before the first one that does not fit into so many bytes."""
    for number, (name, value) in enumerate(pairs):
        room -= len(name) + len(value.encode()) + _AROUND
        if room < 0:
            return pairs[:number]
    return pairs


def _pages(store: PageStore, urls: Iterable[Item], missing: list[Item]) -> Iterator[Page]:
    for url in urls:
        page = store.get(url)
        if page is None:
            missing.append(url)
        else:
            yield page
