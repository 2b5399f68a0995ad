"""The store: pages of any number, addressed by URL, in a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Self

from tbloom.arguments import Item, check_at, check_items
from tbloom.engine.forks import NotCopied, call_in_child
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import calendar, cdxj, opening, reading
from tbloom.pages.config import agreed, given
from tbloom.pages.index import Index
from tbloom.pages.members import check_codec
from tbloom.pages.page import Headers, Page, checked, fingerprint_of
from tbloom.pages.reading import PagesInfo, PagesReport
from tbloom.pages.writer import Writer, batches

_SEGMENT_BYTES = 1 << 30


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
        segment_bytes: int = _SEGMENT_BYTES,
        codec: str = "gzip",
    ) -> None:
        """Opens the store in a folder, or begins one.

        :param path: the folder. It may be new or empty.
        :param granularity: pages are kept for the newest ``slices`` periods of it, as in ``TimeBloom``, and leave
            with their slice: that of the time when they were fetched. None: for ever in a new store; in an existing
            one, its stored parameters.
        :param slices: the number of periods that are kept.
        :param tz: the time zone in which slices begin (UTC).
        :param readonly: True: only to read, also while another process writes.
        :param segment_bytes: the size from which on a WARC file gets no more pages.
        :param codec: how pages are stored from now on: ``gzip``, ``zstd`` (smaller, and slower to put; in other files) or
            ``identity`` (uncompressed, and fastest). Stored pages stay as they are.
        :raises ConfigError: where an argument can't be right.
        :raises ConfigMismatch: where the stored store has other slices.
        :raises StoreLocked: where another process or object writes to it.
        :raises TBloomError: where it is damaged.
        :raises OSError: where the disk is full, or can't be read.
        """
        self._root = opening.folder(path)
        wanted = given(granularity, slices, tz)
        if not isinstance(readonly, bool):
            raise ConfigError("readonly", readonly, "True or False")
        if type(segment_bytes) is not int or segment_bytes < 1:
            raise ConfigError("segment_bytes", segment_bytes, "a whole number of bytes, 1 or more")
        check_codec(codec)
        self._writer: Writer | None = None
        #: The reason why it can't be written, for errors.
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
        """Makes the index of the store anew, from its WARC files alone.

        :param progress: is called with the number of bytes of each record, once it is read.
        :returns: the result of ``stats()`` afterwards.
        :raises ConfigError: where the folder has no segments of a store.
        :raises StoreLocked: where somebody writes to it.
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
        """Stores a page, in the place of an earlier one with this URL. Once it returns, ``kill -9`` does not lose the page.

        :param url: an absolute ``http://`` or ``https://`` URL; it is taken as it is.
        :param body: the bytes as they were received; encoded, where ``headers`` have a Content-Encoding.
        :param headers: the HTTP headers; a mapping, or (name, value) pairs where names repeat. Kept as Latin-1,
            without the space around a value.
        :param at: the time when it was fetched, with a time zone (now). It decides the page's slice.
        :param key: its address for ``get``, in place of the URL.
        :param fields: further named fields of its WARC record, such as ``WARC-IP-Address``.
        :raises ConfigError: where an argument can't be right, such as an ``at`` before the window.
        :raises TBloomError: where the store was opened to be read.
        :raises OSError: where the disk has no room for the page; then nothing has changed.
        """
        writer = self._writing()
        at = calendar.now() if at is None else at
        given: Any = (url, status, headers, body, at, key, fields)
        writer.put([checked(Page(*given))])

    def put_many(self, pages: Iterable[Page], *, newer: bool = False) -> int:
        """Stores pages, faster than one by one; returns the number of those that were stored.

        They are stored in batches, in their order. Where an error is raised, or the process is interrupted, each batch is
        stored whole or not at all; so with ``kill -9``, except that of the last one any pages may be stored.

        :param newer: True: a page stays whose stored copy was fetched at the same time or later.
        :raises ConfigError: where ``put`` would raise it for one of the pages.
        :raises TBloomError: where the store was opened to be read.
        :raises OSError: where the disk has no room for the batch.
        """
        if not isinstance(newer, bool):
            raise ConfigError("newer", newer, "True or False")
        self._writing()
        given = map(checked, check_items(pages, "pages"))
        # Anew for each batch: the iterable may have forked.
        return sum(self._writing().put(batch, newer=newer)["stored"] for batch in batches(given))

    def merger(self) -> Callable[[Iterable[Page]], Counter[str]]:
        """Return a function that stores pages of one source as ``put_many`` with ``newer`` does, but of those from one time the last.

        It returns the numbers of pages that were "stored", "replaced" (one of the source from the same time), and "present".
        """
        since = self._writing().sizes()
        return lambda pages: self._writing().put(map(checked, pages), newer=True, since=since)

    def get(self, url: Item) -> Page | None:
        """The page with this URL or key; None: there is none within the window.

        :raises TBloomError: where its record is damaged.
        """
        return self.get_many([url])[0]

    def get_many(self, urls: Iterable[Item]) -> list[Page | None]:
        """The pages with these URLs or keys, in this order, as ``get`` returns each; faster than one by one.

        :raises TBloomError: where a record is damaged.
        """
        wanted = [*check_items(urls, "urls")]
        return reading.get_many(self._reading(), self._config, wanted)

    def __contains__(self, url: Item) -> bool:
        """True: there is a page with this URL or key."""
        fingerprint = fingerprint_of(url)
        return self._reading().find(fingerprint, self._config.since()) is not None

    def delete(self, url: Item) -> bool:
        """Forgets the page with this URL or key; False: there was none. Its bytes leave with its slice.

        :raises TBloomError: where the store was opened to be read.
        """
        return self._writing().delete(fingerprint_of(url))

    def __len__(self) -> int:
        """The number of pages."""
        kept = self._reading().segments(self._config.since())
        return sum(segment.pages for segment in kept)

    def __bool__(self) -> bool:
        """True, also for a store without pages: ``if self.store`` asks for None."""
        return True

    def __iter__(self) -> Iterator[Item]:
        """The address of each page, in the order of ``pages``: its URL or its key. Bodies are not read."""
        found = reading.current(self._reading(), self._config)
        return (one.head.address for _, one in found)

    def pages(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[Page]:
        """All pages, slice by slice, in the order of the files.

        A page that is put, replaced or deleted meanwhile may come or not. A damaged or missing page is skipped,
        with a warning of the logger ``tbloom.pages.reading`` that names the place.

        :param since: only those that were fetched then or later.
        :param until: only those that were fetched before.
        """
        times = check_at(since, "since"), check_at(until, "until")
        return reading.pages(self._reading(), self._config, *times)

    def cdxj(self) -> Iterator[bytes]:
        """The lines of a CDXJ index of all pages, sorted: pywb finds them by it in the store's WARC files.

        Pages in ``.warc.zst`` files are left out with a warning, because pywb does not read these.

        :raises TBloomError: where the package ``surt`` is missing.
        """
        return cdxj.lines(self._reading(), self._config)

    def check_parameters(
        self,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        *,
        tz: str | None = None,
    ) -> None:
        """Raises ConfigError or ConfigMismatch where the store could not be opened with these."""
        agreed(self.path, self._config.stored, given(granularity, slices, tz))

    def stats(self) -> PagesInfo:
        """Pages, records, files and bytes, slice by slice."""
        return reading.stats(self._reading(), self._config)

    def verify(self) -> PagesReport:
        """Reads all records, and compares them with their checksums and with the index; changes nothing.

        What a writer changes meanwhile makes the index's log longer, which is used again only afterwards.
        """
        return reading.verify(self._reading(), self._config)

    def flush(self) -> None:
        """Waits until all pages are on the disk, safe from a power cut. ``close`` does so too."""
        self._writing().flush()

    def close(self) -> None:
        """Closes the store, after all pages are on the disk."""
        if self._is_open:
            self._is_open = False
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self._index.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def __del__(self) -> None:
        """Releases the lock and the index."""
        if getattr(self, "_is_open", False):
            with suppress(Exception):  # at the end of the process, modules may be gone
                self.close()

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
        """Ends writing in a forked child: the lock is the parent's."""
        if self._is_open and self._writer is not None:
            self._writer.abandon()
            self._writer = None
            self._refusal = "is written by the process that this one was forked from"
