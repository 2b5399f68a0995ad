"""The writer of a store: appends records, and notes them in the index."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from tbloom.errors import TBloomError
from tbloom.pages import record, recovery, segments
from tbloom.pages.appending import OpenSegments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.lock import WriterLock
from tbloom.pages.page import Page, check_again, fingerprint_of, micros
from tbloom.pages.recovery import Moved
from tbloom.pages.snapshot import EVER, Change, Corrupted, Entry, Kept

#: Puts between two looks for killed readers, whose part of the index can't be used again before.
_PUTS_PER_LOOK = 1_000
#: A batch ends with the page that reaches one of these: their records are in memory.
BATCH_PAGES, BATCH_BYTES = 256, 1 << 22


def batches(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """The pages, checked like the arguments of a new one, in lists that are stored together."""
    batch: list[Page] = []
    size = 0
    for page in pages:
        batch.append(check_again(page))
        size += len(page.body)
        if len(batch) >= BATCH_PAGES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Writer:
    """Changes a store. It has the store's lock until ``close``."""

    def __init__(
        self, root: Path, index: Index, calendar: Calendar, lock: WriterLock, own: OpenSegments
    ) -> None:
        self._root, self._index, self._calendar, self._lock = root, index, calendar, lock
        self._guard = threading.Lock()
        self._segments = own
        #: Slices that the index has.
        self._labels: set[str] = set()
        #: Slices that began before this (ms) are gone. (The clock may be set back later.)
        self._forgotten = EVER
        self._is_open = True
        self._puts = 0
        with index.changing():  # it may be refused
            pass
        # Before anything changes. (A suspect index has been made anew by now.)
        lock.mark()
        if not lock.was_closed:
            self._segments.unflushed.update(segments.stored(root).values())
        moved = recovery.reconcile(root, index, calendar)
        index.forget_dead_readers()
        self._forget_old()
        self._delete_moved(moved)

    def put(self, pages: Iterable[Page], *, newer: bool = False) -> int:
        """Stores the pages in one change of the index; returns their number.

        With ``newer``, a page stays whose stored copy was fetched at the same time or later. Raises OSError, with
        nothing changed, where there is no room for them.
        """
        with self._guard:
            self._check_open()
            try:
                self._forget_old()
                placed = [(page, self._slice_for(page)) for page in pages]
                with self._index.changing() as change:
                    moved, count = [], 0
                    for page, label in placed:
                        fingerprint, slice = fingerprint_of(page.address), change.slice(label)
                        had = change.find(fingerprint)
                        if newer and had is not None and had[1].at >= micros(page.at):
                            continue
                        if had is not None and had[0] != slice:
                            change.remove(had[0], fingerprint)
                            if had[0].start > slice.start:
                                moved.append((had[0], fingerprint, change.next_sequence()))
                        self._put(change, slice, page, fingerprint)
                        count += 1
                    self._segments.write(change)
                    # Else an index made anew after an earlier slice has left would have an old page of a later slice
                    # again. Written last: a kill in between loses no page.
                    if moved:
                        for slice, fingerprint, sequence in moved:
                            self._append_deletion(change, slice, fingerprint, sequence)
                        self._segments.write(change)
            except BaseException:
                self._take_back()
                raise
            self._segments.done()
        return count

    def delete(self, fingerprint: bytes) -> bool:
        """Deletes the page with this address; False: there was none."""
        with self._guard:
            self._check_open()
            try:
                self._forget_old()
                with self._index.changing() as change:
                    had = change.find(fingerprint, self._calendar.since())
                    if had is None:
                        return False
                    self._append_deletion(change, had[0], fingerprint, change.next_sequence())
                    change.remove(had[0], fingerprint)
                    self._segments.write(change)
            except BaseException:
                self._take_back()
                raise
            self._segments.done()
        return True

    def flush(self) -> None:
        """Waits until all is on the disk."""
        with self._guard:
            self._check_open()
            self._flush()

    def close(self) -> None:
        """Waits until all is on the disk, and releases the lock."""
        with self._guard:
            self._check_open()
            self._is_open = is_clean = False
            try:
                self._flush()
                is_clean = True
            finally:
                self._segments.close()
                self._lock.release(is_clean=is_clean)

    def abandon(self) -> None:
        """Closes the files in a forked child; they and the lock are the parent's."""
        self._guard = threading.Lock()
        self._segments.close()
        self._lock.release(is_clean=False)

    def _take_back(self) -> None:
        self._index.abort()
        self._segments.take_back(self._index)

    def _check_open(self) -> None:
        if not self._is_open:  # closed by another thread
            raise TBloomError(f"the page store {str(self._root)!r} is closed")

    def _flush(self) -> None:
        self._segments.flush()
        self._index.flush()
        self._index.forget_dead_readers()

    def _slice_for(self, page: Page) -> str:
        """The label of the page's slice, added to the index."""
        self._puts += 1
        if not self._puts % _PUTS_PER_LOOK:
            self._index.forget_dead_readers()
        slice = self._calendar.slice_of(page.at)
        if slice.label not in self._labels:
            with self._index.reading() as snapshot:
                self._labels = {one.label for one in snapshot.slices}
            if slice.label not in self._labels:
                self._index.begin_slice(slice.label, slice.start)
        return slice.label

    def _put(self, change: Change, slice: Kept, page: Page, fingerprint: bytes) -> None:
        appender, sequence = self._segments.of(change, slice), change.next_sequence()
        data = record.of_page(page, sequence, appender.identity, self._segments.codec)
        place = appender.segment.number, appender.append(data), len(data)
        change.put(slice, fingerprint, Entry(*place, micros(page.at), sequence))

    def _append_deletion(
        self, change: Change, slice: Kept, fingerprint: bytes, sequence: int
    ) -> None:
        appender = self._segments.of(change, slice)
        appender.append(
            record.of_deletion(fingerprint, sequence, appender.identity, self._segments.codec)
        )

    def _delete_moved(self, moved: list[Moved]) -> None:
        """Writes deletions that a killed writer may not have written (see ``put``). Twice does no harm."""
        for label, fingerprint, sequence in moved:
            with self._index.changing() as change:
                if any(slice.label == label for slice in change.slices):
                    self._append_deletion(change, change.slice(label), fingerprint, sequence - 1)
                    self._segments.write(change)

    def _forget_old(self) -> None:
        """Drops the slices that have left the window, and their files."""
        since = self._calendar.since()
        if since == self._forgotten:
            return
        with self._index.reading() as snapshot:
            old = [slice for slice in snapshot.slices if slice.start < since]
            for slice in old:  # a damaged start must not delete its files
                if not self._calendar.config.is_in(slice.start, slice.label):
                    raise Corrupted(f"slice {slice.label!r} does not begin at {slice.start}")
        for slice in old:
            self._segments.close_slice(slice.label)
            self._labels.discard(slice.label)
            self._drop(slice)
        self._forgotten = since

    def _drop(self, slice: Kept) -> None:
        with self._index.reading() as snapshot:
            ours = snapshot.segments_of(slice)
        paths = [segments.path_of(self._root, slice.label, one.number) for one in ours]
        try:
            with self._index.changing() as change:
                change.drop_slice(slice)
        except OSError:
            # The disk is full: its files make room for the change. (The next writer copes with missing files.)
            self._segments.unlink(paths)
            with self._index.changing() as change:
                change.drop_slice(slice)
        self._segments.unlink(paths)
