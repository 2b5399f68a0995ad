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

#: Bytes of HTTP headers, and of WARC headers, with room for those that are written here. At a record with more than 32 KB,
#: FastWARC stops reading the file.
_MAX_HEAD = (1 << 15) - (1 << 10)
#: What is written around a name and its value, at most.
_AROUND = len(record.ORIGINAL) + len(": \r\n")


@dataclass(frozen=True, slots=True)
class PagesExported:
    """The result of an export."""

    #: The number of pages in the file.
    pages: int
    #: Addresses that were asked for, and are not in the store.
    missing: tuple[Item, ...]
    #: Addresses of pages that are in the file without the headers for which other tools have no room, over 31 KB; or, where
    #: their URL alone is that long, not at all.
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
    """Writes pages into a WARC file, which ``import_warc`` reads back byte for byte, and which other tools read.

    :param file: a file opened to write bytes.
    :param urls: the URLs or keys of the pages (all pages).
    :param since: only pages that were fetched then or later.
    :param until: only pages that were fetched before.
    :param codec: how they are compressed, as for ``PageStore``.
    :param progress: is called with 1 after each page.
    :raises ConfigError: where an argument can't be right, such as URLs and a time too.
    :raises TBloomError: where a page that is asked for is damaged.
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
    """The pairs up to the first one for which so many bytes are too few."""
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
