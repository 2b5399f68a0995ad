"""Writes pages of a store into a WARC file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from tbloom.errors import ConfigError
from tbloom.items import Item
from tbloom.pages import record
from tbloom.pages.members import check_codec
from tbloom.pages.page import Page
from tbloom.pages.sync import PageStore


@dataclass(frozen=True, slots=True)
class PagesExported:
    """The result of an export."""

    #: The number of pages in the file.
    pages: int
    #: Addresses that were asked for, and are not in the store.
    missing: tuple[Item, ...]


def export_warc(
    store: PageStore,
    file: BinaryIO,
    urls: Iterable[Item] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    codec: str = "gzip",
) -> PagesExported:
    """Writes pages into a WARC file, which ``import_warc`` reads back byte for byte.

    :param file: a file opened to write bytes.
    :param urls: the URLs or keys of the pages (all pages).
    :param since: only pages that were fetched then or later.
    :param until: only pages that were fetched before.
    :param codec: how they are compressed, as for ``PageStore``.
    :raises ConfigError: where an argument can't be right, such as URLs and a time too.
    :raises TBloomError: where a page that is asked for is damaged.
    """
    if urls is not None and (since or until):
        raise ConfigError("urls", "given", "either URLs, or since and until")
    check_codec(codec)
    info = record.new_id()
    file.write(record.of_info(info, codec))
    missing: list[Item] = []
    pages = store.pages(since, until) if urls is None else _pages(store, urls, missing)
    count = 0
    for count, page in enumerate(pages, 1):  # noqa: B007 - the last one
        file.write(record.of_page(page, None, info, codec))
    return PagesExported(count, tuple(missing))


def _pages(store: PageStore, urls: Iterable[Item], missing: list[Item]) -> Iterator[Page]:
    for url in urls:
        page = store.get(url)
        if page is None:
            missing.append(url)
        else:
            yield page
