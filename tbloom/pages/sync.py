"""``PageStore``: pages in a folder, addressed by URL."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from tbloom.arguments import Item, check_at, check_items
from tbloom.engine.forks import NotCopied, call_in_child
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import clock, opening, reading
from tbloom.pages.config import from_arguments, from_stored
from tbloom.pages.index import Index
from tbloom.pages.members import check_codec
from tbloom.pages.page import Headers, Page, checked, fingerprint_of
from tbloom.pages.reading import PagesInfo, PagesReport
from tbloom.pages.writer import SEGMENT_BYTES, Writer, batches

_T = TypeVar("_T")


class PageStore(NotCopied):
    """Pages in WARC files, addressed by URL.

    One process writes at a time, and others may read meanwhile. Threads may share an object; a forked
    child can read with its parent's, but not write.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        *,
        tz: str | None = None,
        readonly: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        codec: str = "gzip",
    ) -> None:
        """Open the store in a folder, or begin one.

        :param path: the folder. It may be new or empty.
        :param granularity: pages of the newest ``slices`` periods are kept, as in ``TimeBloom``. A page belongs to the slice in
            which it was fetched, and leaves with it. None: in a new store, pages are kept forever; an existing one has
            its stored parameters.
        :param slices: the number of periods that are kept.
        :param tz: the time zone in which slices begin (UTC).
        :param readonly: True: open the store only to read, even while another process writes.
        :param segment_bytes: a WARC file of this size gets no more pages.
        :param codec: how pages are stored from now on: ``gzip``, or ``zstd`` (smaller, and slower to put; in other files).
            Stored pages stay as they are.
        :raises ConfigError: if an argument is wrong.
        :raises ConfigMismatch: if the store has other parameters.
        :raises StoreLocked: if another process or object writes to it.
        :raises TBloomError: if it is damaged.
        :raises OSError: if the disk is full, or can't be read.
        """
        self._root = opening.folder(path)
        wanted = from_arguments(granularity, slices, tz)
        if not isinstance(readonly, bool):
            raise ConfigError("readonly", readonly, "True or False")
        if type(segment_bytes) is not int or segment_bytes < 1:
            raise ConfigError("segment_bytes", segment_bytes, "a whole number of bytes, 1 or more")
        check_codec(codec)
        self._writer: Writer | None = None
        #: Why it can't be written, for errors.
        self._refusal = "was opened to be read only"
        if readonly:
            self._index, self._config = opening.to_read(self._root, wanted)
        else:
            opened = opening.to_write(self._root, wanted, segment_bytes, codec)
            self._index, self._config, self._writer = opened
        self._is_open = True
        call_in_child(self._after_fork)

    @classmethod
    def rebuild(
        cls, path: str | os.PathLike[str], *, progress: Callable[[int], object] | None = None
    ) -> PagesInfo:
        """Build the index of the store anew, from its WARC files alone.

        :param progress: is called with the length of each record in bytes, once it is read.
        :returns: the result of ``stats()`` afterwards.
        :raises ConfigError: if the folder has no segments of a store.
        :raises StoreLocked: if another process or object writes to it.
        """
        root = opening.folder(path)
        opening.rebuild(root, progress)
        with cls(root) as store:
            return store.stats()

    @property
    def path(self) -> str:
        """The folder."""
        return str(self._root)

    def put(
        self,
        url: str,
        body: bytes,
        *,
        status: int = 200,
        headers: Headers | None = None,
        at: datetime | None = None,
        key: Item | None = None,
        fields: Headers | None = None,
    ) -> None:
        """Store a page. It replaces an earlier one with this URL. Once ``put`` returns, ``kill -9`` does not lose the page.

        :param url: an absolute ``http://`` or ``https://`` URL; it is not canonicalized.
        :param body: the bytes as they were received: still encoded if ``headers`` have a Content-Encoding.
        :param headers: the HTTP headers: a mapping, or (name, value) pairs if names repeat. They are kept as Latin-1,
            without the space around a value.
        :param at: the time when it was fetched, with a time zone (now). It decides the page's slice.
        :param key: its address for ``get``, instead of the URL.
        :param fields: further named fields of its WARC record, such as ``WARC-IP-Address``.
        :raises ConfigError: if an argument is wrong, such as an ``at`` before the window.
        :raises TBloomError: if the store was opened with ``readonly=True``.
        :raises OSError: if the disk has no room for the page; then nothing has changed.
        """
        writer = self._writing()
        at = clock.now() if at is None else at
        given: Any = (url, status, headers, body, at, key, fields)
        writer.put([checked(Page(*given))])

    def put_many(self, pages: Iterable[Page], *, newer: bool = False) -> int:
        """Store pages, faster than one by one. Return the number of those that were stored.

        They are stored in batches, in their order. If an error is raised, or the process is interrupted, each batch is
        stored whole or not at all. After ``kill -9``, any pages of the last batch may be stored.

        :param newer: True: a stored page that was fetched at the same time or later is not replaced.
        :raises ConfigError: if ``put`` would raise it for one of the pages.
        :raises TBloomError: if the store was opened with ``readonly=True``.
        :raises OSError: if the disk has no room for the batch.
        """
        if not isinstance(newer, bool):
            raise ConfigError("newer", newer, "True or False")
        self._writing()
        given = map(checked, check_items(pages, "pages"))
        # Asked for each batch, because the iterable may have forked the process.
        return sum(self._writing().put(batch, newer=newer)["stored"] for batch in batches(given))

    def merger(self) -> Callable[[Iterable[Page]], Counter[str]]:
        """Return a function that stores pages of one source, as ``put_many`` does with ``newer``.

        Of several pages of the source with one address and time, the last is stored. The function returns how many pages were
        "stored", "replaced" (an earlier page of the source with the same time), and "present".
        """
        self._writing()
        since = {segment.number: segment.size for segment in self._index.segments()}
        return lambda pages: self._writing().put(map(checked, pages), newer=True, since=since)

    def get(self, url: Item) -> Page | None:
        """Return the page with this URL or key; None if there is none in the window.

        :raises TBloomError: if its record is damaged.
        """
        return self.get_many([url])[0]

    def get_many(self, urls: Iterable[Item]) -> list[Page | None]:
        """Return the pages with these URLs or keys, in this order, as ``get`` returns each. It is faster than one by one.

        :raises TBloomError: if a record is damaged.
        """
        wanted = [*check_items(urls, "urls")]
        return reading.get_many(self._reading(), self._config, wanted)

    def __contains__(self, url: Item) -> bool:
        """Return True if there is a page with this URL or key."""
        fingerprint = fingerprint_of(url)
        return self._reading().find(fingerprint, self._config.since()) is not None

    def delete(self, url: Item) -> bool:
        """Delete the page with this URL or key. Return False if there was none. Its bytes leave with its slice.

        :raises TBloomError: if the store was opened with ``readonly=True``.
        """
        return self._writing().delete(fingerprint_of(url))

    def __len__(self) -> int:
        """Return the number of pages."""
        kept = self._reading().segments(self._config.since())
        return sum(segment.pages for segment in kept)

    def __bool__(self) -> bool:
        """Return True, even for a store without pages: ``if store`` asks whether it is None."""
        return True

    def __iter__(self) -> Iterator[str | bytes]:
        """Yield the address of each page, its URL or key, in the order of ``pages``. Bodies are not read."""
        return self._while_open(reading.addresses(self._reading(), self._config))

    def pages(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[Page]:
        """Yield all pages, slice by slice, in the order of the files.

        Each page that there was when it began comes once. One that is replaced meanwhile comes as it was, or at the end as it is;
        one that is deleted may be missing. What is new since then does not come. A damaged or missing page is skipped, and the
        logger ``tbloom.pages.reading`` warns of its place.

        :param since: only pages that were fetched then or later.
        :param until: only pages that were fetched before.
        """
        times = check_at(since, "since"), check_at(until, "until")
        return self._while_open(reading.pages(self._reading(), self._config, *times))

    def fetched_in(self, seconds: Collection[int]) -> Iterator[Page]:
        """Yield the pages that were fetched in these seconds since the epoch, also those that were replaced, but none that was deleted.

        Each place in the index is looked at, and each record of a replaced page is read: it takes seconds for each million.
        """
        there = self._reading().segments(self._config.since())
        return self._while_open(reading.fetched_in(self._index, there, seconds))

    def check_parameters(
        self,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        *,
        tz: str | None = None,
    ) -> None:
        """Raise ConfigError or ConfigMismatch if the store can't be opened with these parameters."""
        from_stored(self.path, self._config.stored, from_arguments(granularity, slices, tz))

    def stats(self) -> PagesInfo:
        """Return the numbers of pages, records, files and bytes, slice by slice."""
        return reading.stats(self._reading(), self._config)

    def verify(self) -> PagesReport:
        """Compare all records with their checksums and with the index; change nothing."""
        return reading.verify(self._reading(), self._config)

    def flush(self) -> None:
        """Wait until all pages are on the disk, safe from a power cut. ``close`` does so too."""
        self._writing().flush()

    def close(self) -> None:
        """Wait until all pages are on the disk, and close the store."""
        if self._is_open:
            self._is_open = False
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self._index.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the store. An error of the block comes first: the same may keep the store from being closed well."""
        with suppress(*(() if kind is None else (TBloomError, OSError))):
            self.close()

    def __del__(self) -> None:
        """Release the lock and the index."""
        if getattr(self, "_is_open", False):
            with suppress(Exception):  # at the end of the process, modules may be gone
                self.close()

    def _while_open(self, found: Iterator[_T]) -> Iterator[_T]:
        """Yield what is found. The generator refers to the store, so that ``for url in PageStore(path)`` does not close it."""
        yield from found

    def _reading(self) -> Index:
        if not self._is_open:
            raise TBloomError(f"the page store {self.path!r} is closed")
        return self._index

    def _writing(self) -> Writer:
        self._reading()
        if self._writer is None:
            raise TBloomError(f"the page store {self.path!r} {self._refusal}")
        return self._writer

    def _after_fork(self) -> None:
        """Make the store read-only in a forked child: the lock is the parent's."""
        if self._is_open and self._writer is not None:
            self._writer.abandon()
            self._writer = None
            self._refusal = "is written by the process that this one was forked from"
