"""The class: pages of any number, addressed by URL, in a folder."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tbloom.errors import ConfigError, TBloomError
from tbloom.items import Item, encode
from tbloom.pages import calendar, check, opening, overview, record, recovery, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import agreed, given
from tbloom.pages.index import Index
from tbloom.pages.info import PagesInfo, PagesReport
from tbloom.pages.page import Headers, Page, check_page, fingerprint_of
from tbloom.pages.snapshot import Entry, Kept
from tbloom.pages.writer import Writer

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_SEGMENT_BYTES = 1 << 30
_stores: weakref.WeakSet[PageStore] = weakref.WeakSet()


class PageStore:
    """Pages in WARC files, addressed by URL.

    One process writes at a time, and others may read meanwhile. Threads may share an object; a forked
    child can read with its parent's, and not write.
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
    ) -> None:
        """Opens the store in a folder, or begins one.

        :param path: the folder. It may be new or empty.
        :param granularity: pages are kept for the newest ``slices`` periods of it, as in ``TimeBloom``, and leave
            with their slice: that of the time when they were fetched. Of a new store, None means for ever; of one that
            is there, what is stored with it.
        :param slices: how many periods are kept.
        :param tz: the time zone that slices begin in (UTC).
        :param readonly: to read only, also while another process writes.
        :param segment_bytes: a WARC file that has grown to this gets no more pages.
        :raises ConfigError: where an argument can't be right.
        :raises ConfigMismatch: where the stored store has other slices.
        :raises StoreLocked: where another process, or object, writes to it.
        :raises TBloomError: where it is damaged.
        :raises OSError: where the disk is full, or can't be read.
        """
        self._root = opening.folder(path)
        wanted = given(granularity, slices, tz)
        if not isinstance(readonly, bool):
            raise ConfigError("readonly", readonly, "True or False")
        if (
            not isinstance(segment_bytes, int)
            or isinstance(segment_bytes, bool)
            or segment_bytes < 1
        ):
            raise ConfigError("segment_bytes", segment_bytes, "a whole number of bytes, 1 or more")
        self._writer: Writer | None = None
        #: Why it can't be written.
        self._refusal = "was opened to be read only"
        if readonly:
            self._index, config = opening.to_read(self._root, wanted)
            self._calendar = Calendar(config)
        else:
            self._index, config, lock = opening.to_write(self._root, wanted)
            self._calendar = Calendar(config)
            try:
                self._writer = Writer(self._root, self._index, self._calendar, lock, segment_bytes)
            except BaseException:
                self._index.close()
                lock.release(is_clean=False)
                raise
        self._is_open = True
        _stores.add(self)

    @classmethod
    def rebuild(
        cls, path: str | os.PathLike[str], progress: recovery.Progress | None = None
    ) -> PagesInfo:
        """Makes the index of the store anew, from its WARC files alone.

        :param progress: called now and then with how many bytes of the files have been looked through, and of how many.
        :returns: what ``stats()`` tells afterwards.
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
        """Stores a page, in the place of the one that this URL has; when it returns, a ``kill -9`` loses nothing of it.

        :param url: an absolute ``http://`` or ``https://`` URL; it is taken as it is.
        :param body: as it came; encoded, if ``headers`` have a Content-Encoding that says so.
        :param headers: the HTTP headers; a mapping, or (name, value) pairs where names repeat. Kept as Latin-1,
            without the space around a value.
        :param at: when it was fetched, with a time zone; now, if not given. It decides the page's slice.
        :param key: what ``get`` finds it by in place of the URL.
        :param fields: further named fields of its WARC record, such as ``WARC-IP-Address``.
        :raises ConfigError: where an argument can't be right, such as an ``at`` before the window.
        :raises TBloomError: where the store was opened to be read.
        :raises OSError: where there is no room for the page; nothing is changed then.
        """
        writer = self._writing()
        at = calendar.now() if at is None else at
        page = check_page(url, body, at, status=status, headers=headers, key=key, fields=fields)
        writer.put(page, fingerprint_of(page.address))

    def get(self, url: Item) -> Page | None:
        """The page with this URL, or key; None: there is none within the window.

        :raises TBloomError: where its record is damaged.
        """
        fingerprint = fingerprint_of(url)
        index = self._reading()
        for is_last in (False, True):
            with index.reading() as snapshot:
                found = snapshot.find(fingerprint, self._calendar.since())
            if found is None:
                return None
            try:
                page = self._read(fingerprint, *found)
                # Or else it is another page, which BLAKE2b does not tell from this one.
                return page if encode(page.address) == encode(url) else None
            except FileNotFoundError:
                # Its slice has left the window just now; or else somebody has removed the file.
                if is_last:
                    raise self._damaged(*found, "it is missing") from None
            except record.Damaged as error:
                raise self._damaged(*found, str(error)) from None
        raise AssertionError  # not reached

    def __contains__(self, url: Item) -> bool:
        """Whether there is a page with this URL, or key."""
        fingerprint = fingerprint_of(url)
        with self._reading().reading() as snapshot:
            return snapshot.find(fingerprint, self._calendar.since()) is not None

    def delete(self, url: Item) -> bool:
        """Forgets the page with this URL, or key; False: there was none. Its bytes leave with its slice.

        :raises TBloomError: where the store was opened to be read.
        """
        return self._writing().delete(fingerprint_of(url))

    def __len__(self) -> int:
        """How many pages there are."""
        with self._reading().reading() as snapshot:
            kept = snapshot.kept(self._calendar.since())
            return sum(snapshot.pages(slice) for slice in kept)

    def __bool__(self) -> bool:
        """True, also of one without pages: ``if self.store`` asks whether there is a store."""
        return True

    def __iter__(self) -> Iterator[Item]:
        """What ``get`` finds each page by, its URL, or its key (bytes, if that is no URL), as ``pages``; bodies are not read."""
        return overview.addresses(self._root, self._reading(), self._calendar)

    def pages(self) -> Iterator[Page]:
        """All pages, slice by slice, as they stand in the files.

        A page that is put, replaced or deleted meanwhile may come or not. What is damaged or missing is passed over,
        with a warning of the logger ``tbloom.pages.overview`` that tells the place.
        """
        return overview.pages(self._root, self._reading(), self._calendar)

    def check_parameters(
        self,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        *,
        tz: str | None = None,
    ) -> None:
        """Raises ConfigError or ConfigMismatch where the store could not be opened with these."""
        agreed(self.path, self._calendar.config.stored, given(granularity, slices, tz))

    def stats(self) -> PagesInfo:
        """Pages, records, files and bytes, slice by slice."""
        return overview.stats(self._root, self._reading(), self._calendar)

    def verify(self, progress: recovery.Progress | None = None) -> PagesReport:
        """Reads all records, and compares them with their digests and with the index; changes nothing.

        While it looks, what a writer changes takes room in the index that is used again only afterwards.

        :param progress: called now and then with how many bytes have been looked through, and of how many.
        """
        return check.verify(self._root, self._reading(), self._calendar, progress)

    def flush(self) -> None:
        """Waits until all that was put is on the disk, and safe from a power cut too. ``close`` does so as well."""
        self._writing().flush()

    def close(self) -> None:
        """Lets go of the store; what is on its way to the disk is waited for."""
        if self._is_open:
            self._is_open = False
            _stores.discard(self)
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self._index.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def __del__(self) -> None:
        """The next one may have the lock, and the index."""
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

    def _read(self, fingerprint: bytes, slice: Kept, entry: Entry) -> Page:
        path = self._root / segments.name_of(slice.label, entry.segment)
        page = record.page_of(segments.read(path, entry.offset, entry.length))
        if fingerprint_of(page.address) != fingerprint:
            raise record.Damaged("it has another page")
        return page

    def _damaged(self, slice: Kept, entry: Entry, why: str) -> TBloomError:
        path = self._root / segments.name_of(slice.label, entry.segment)
        return TBloomError(
            f"{str(path)!r} is damaged at {entry.offset}, or the index is not that of this file: {why}; "
            "'tbloom pages verify' tells more, 'tbloom pages rebuild' makes the index anew"
        )

    def _after_fork(self) -> None:
        """The lock is the parent's."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
            self._refusal = "is written by the process that this one was forked from"


def _tell_stores() -> None:
    for store in list(_stores):
        store._after_fork()  # noqa: SLF001 - our own


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_tell_stores)
