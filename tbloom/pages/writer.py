"""The writer of a store: appends records, and notes them in the index."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tbloom.errors import TBloomError
from tbloom.pages import record, recovery, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.lock import WriterLock
from tbloom.pages.page import Page, micros
from tbloom.pages.recovery import Moved
from tbloom.pages.segments import Appender
from tbloom.pages.snapshot import EVER, Change, Corrupted, Entry, Kept, Segment

#: Puts between two looks for killed readers, whose part of the index can't be used again before.
_PUTS_PER_LOOK = 1_000
#: Segments that stay open: a process may have few files, and a store 1,024 slices. A put writes to two at most.
_MAX_OPEN = 16


class Writer:
    """Changes a store. It has the store's lock until ``close``."""

    def __init__(
        self, root: Path, index: Index, calendar: Calendar, lock: WriterLock, segment_bytes: int
    ) -> None:
        self._root, self._index, self._calendar, self._lock = root, index, calendar, lock
        self._segment_bytes = segment_bytes
        self._guard = threading.Lock()
        #: The segment for each slice's pages.
        self._appenders: dict[str, tuple[int, Appender]] = {}
        #: The last segment that this writer began.
        self._begun: Path | None = None
        #: Segments that may not be on the disk yet.
        self._written: set[Path] = set()
        #: Slices that began before this (ms) are gone. (The clock may be set back later.)
        self._forgotten = EVER
        self._is_open = True
        self._puts = 0
        # Before anything changes. (A suspect index has been made anew by now.)
        lock.mark()
        if not lock.was_closed:
            stored = segments.stored(root).items()
            self._written |= {segments.path_of(root, label, number) for number, label in stored}
        moved = recovery.reconcile(root, index, calendar)
        index.forget_dead_readers()
        self._forget_old()
        self._delete_moved(moved)

    def put(self, page: Page, fingerprint: bytes) -> None:
        """Stores the page. Raises OSError, with nothing changed, where there is no room for it."""
        with self._guard:
            self._check_open()
            try:
                label = self._slice_for(page)
                with self._index.changing() as change:
                    slice = change.slice(label)
                    had = change.find(fingerprint)
                    later = had[0] if had is not None and had[0].start > slice.start else None
                    before = change.next_sequence() if later else 0
                    if had is not None:
                        change.remove(had[0], fingerprint)
                    sequence = change.next_sequence()
                    segment, offset, length = self._append(
                        change, slice, partial(record.of_page, page, sequence)
                    )
                    if later is not None:
                        # Else an index made anew after the earlier slice has left would have the old page again.
                        # Written last: a kill in between loses no page.
                        self._append_deletion(change, later, fingerprint, before)
                    entry = Entry(segment, offset, length, micros(page.at), sequence)
                    change.put(slice, fingerprint, entry)
            except BaseException:
                self._take_back()
                raise

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
            except BaseException:
                self._take_back()
                raise
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
                for _, appender in self._appenders.values():
                    appender.close()
                self._lock.release(is_clean=is_clean)

    def abandon(self) -> None:
        """Closes the files in a forked child; they and the lock are the parent's."""
        self._guard = threading.Lock()
        for _, appender in self._appenders.values():
            appender.close()
        self._appenders.clear()
        self._lock.release(is_clean=False)

    def _check_open(self) -> None:
        if not self._is_open:  # closed by another thread
            raise TBloomError(f"the page store {str(self._root)!r} is closed")

    def _flush(self) -> None:
        for path in self._written:
            with suppress(FileNotFoundError):  # its slice has left the window
                segments.flush(path)
        self._written.clear()
        segments.flush(self._root)
        self._index.flush()
        self._index.forget_dead_readers()

    def _slice_for(self, page: Page) -> str:
        """The label of the page's slice, added to the index."""
        self._puts += 1
        if not self._puts % _PUTS_PER_LOOK:
            self._index.forget_dead_readers()
        self._forget_old()
        slice = self._calendar.slice_of(page.at)
        with self._index.reading() as snapshot:
            begun = any(one.label == slice.label for one in snapshot.slices)
        if not begun:
            self._index.begin_slice(slice.label, slice.start)
        return slice.label

    def _append(
        self, change: Change, slice: Kept, record_for: Callable[[str], bytes]
    ) -> tuple[int, int, int]:
        """Writes a record of the slice; returns its segment, offset and length."""
        number, appender = self._appender(change, slice)
        self._written.add(appender.path)
        data = record_for(appender.segment)
        offset = appender.append(data)
        known = change.segment(number)
        records = (known.records if known else 0) + 1
        change.put_segment(Segment(number, slice.label, appender.size, records))
        return number, offset, len(data)

    def _append_deletion(
        self, change: Change, slice: Kept, fingerprint: bytes, sequence: int
    ) -> None:
        self._append(change, slice, partial(record.of_deletion, fingerprint, sequence))

    def _delete_moved(self, moved: list[Moved]) -> None:
        """Writes deletions that a killed writer may not have written (see ``put``). Twice does no harm."""
        for label, fingerprint, sequence in moved:
            with self._index.changing() as change:
                if any(slice.label == label for slice in change.slices):
                    self._append_deletion(change, change.slice(label), fingerprint, sequence - 1)

    def _appender(self, change: Change, slice: Kept) -> tuple[int, Appender]:
        """The segment for the slice's pages."""
        found = self._appenders.pop(slice.label, None) or self._last_segment(change, slice)
        if found is not None and found[1].size >= self._segment_bytes:
            found[1].close()
            found = None
        if found is None:
            found = self._new_segment(change.state.segment, slice)
        while len(self._appenders) >= _MAX_OPEN:
            self._appenders.pop(next(iter(self._appenders)))[1].close()
        self._appenders[slice.label] = found  # last in the order of use
        return found

    def _last_segment(self, change: Change, slice: Kept) -> tuple[int, Appender] | None:
        """The slice's last segment; None where there is none, or its first record is damaged."""
        ours = change.segments_of(slice)
        if not ours:
            return None
        path = segments.path_of(self._root, slice.label, ours[-1].number)
        segment = segments.segment_of(path)
        if segment is None:
            return None
        appender = Appender(path, segment)
        if appender.size != ours[-1].size:
            appender.cut(ours[-1].size)
        return ours[-1].number, appender

    def _new_segment(self, number: int, slice: Kept) -> tuple[int, Appender]:
        name, segment = segments.name_of(slice.label, number), record.new_segment()
        stored, label, start = self._calendar.config.stored, slice.label, slice.start
        details = {"parameters": stored, "slice": label, "start": start}
        self._begun = self._root / name
        try:
            appender = Appender(self._begun, segment, is_new=True)
        except FileExistsError:
            self._begun = None
            raise
        found = self._appenders[slice.label] = number, appender
        appender.append(record.of_segment(name, json.dumps(details), segment))
        return found

    def _take_back(self) -> None:
        """After a failure, cuts off records that the index does not know, and removes segments that it does not know."""
        self._index.abort()
        with self._index.reading() as snapshot:
            known = {segments.name_of(one.label, one.number) for one in snapshot.segments()}
            if self._begun is not None and self._begun.name not in known:
                self._begun.unlink(missing_ok=True)
            for label, (number, appender) in [*self._appenders.items()]:
                ours = snapshot.segment(number)
                if ours is None:
                    appender.close()
                    del self._appenders[label]
                    self._written.discard(appender.path)
                    appender.path.unlink(missing_ok=True)
                else:
                    appender.cut(ours.size)

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
            if slice.label in self._appenders:
                self._appenders.pop(slice.label)[1].close()
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
            self._unlink(paths)
            with self._index.changing() as change:
                change.drop_slice(slice)
        self._unlink(paths)

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            self._written.discard(path)
            path.unlink(missing_ok=True)
