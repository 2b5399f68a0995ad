"""The writer of a store: it appends records to segments, and adds them to the index.

One process writes at a time: it locks the file ``lock`` (``flock``), which has its process ID.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tbloom.engine.owned import OwnFile
from tbloom.errors import StoreLocked, TBloomError
from tbloom.pages import record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import LOCK, Index, Place, flush
from tbloom.pages.members import SUFFIXES
from tbloom.pages.page import Page, bytes_of, fingerprint_of, micros
from tbloom.pages.segments import Segment
from tbloom.window import Slice

#: The file always has this size, so that a process ID can be written on a full disk.
_LOCK_BYTES = 128
#: A batch ends with the page that reaches one of these limits, because a batch is in memory.
BATCH_PAGES, BATCH_BYTES = 256, 1 << 22
#: A segment of this size gets no more pages.
SEGMENT_BYTES = 1 << 30
#: So many rows of forgotten pages leave the index with each page that is put.
_SWEPT_ROWS = 4


def batches(pages: Iterable[Page | None]) -> Iterator[list[Page]]:
    """Yield lists of pages to be stored together. A None among the pages ends a list."""
    batch: list[Page] = []
    size = 0
    for page in pages:
        if page is not None:
            batch.append(page)
            size += bytes_of(page)
        if batch and (page is None or len(batch) >= BATCH_PAGES or size >= BATCH_BYTES):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _outcome(at: int, stored: Place | None, since: Mapping[int, int] | None) -> str:
    """Return the outcome of ``Writer.put`` for a page that was fetched at this time, given the stored page with its address."""
    if stored is None or stored.at < at:
        return "stored"
    is_since = since is not None and stored.offset >= since.get(stored.segment, 0)
    return "replaced" if stored.at == at and is_since else "present"


class WriterLock:
    """The lock of a store. Its object holds it until ``close``."""

    def __init__(self, root: Path) -> None:
        """Take the lock. Raise StoreLocked if another writer has it."""
        fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self._file: OwnFile = OwnFile(fd, root / LOCK)
        self._pid = os.getpid()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            #: True: the last writer was killed, and its records may not be on the disk. Then its process ID stays.
            self.is_unflushed: bool = bool(os.pread(fd, _LOCK_BYTES, 0).strip())
            self._file.write(0, b"%-*d" % (_LOCK_BYTES, self._pid))
        except BlockingIOError:
            self._file.close()
            raise StoreLocked(str(root), _pid_of_writer(root)) from None
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        # In a forked child the lock is the parent's.
        if self._pid == os.getpid() and self._file.is_ours:
            if not self.is_unflushed:
                self._file.write(0, b" " * _LOCK_BYTES)
            # A child that another thread has forked may still have the file open.
            fcntl.flock(self._file.fd, fcntl.LOCK_UN)
        self._file.close()


def _pid_of_writer(root: Path) -> object:
    """Return the process ID in the file; None if it has none."""
    try:
        return int((root / LOCK).read_bytes())
    except ValueError:
        return None


class _End(NamedTuple):
    """The end of a segment, where a slice's next record goes."""

    path: Path
    #: The ID of the segment.
    identity: str
    segment: Segment


class Writer:
    """Changes a store. It holds the store's lock until ``close``."""

    def __init__(
        self,
        root: Path,
        index: Index,
        config: PagesConfig,
        lock: WriterLock,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        codec: str = "gzip",
    ) -> None:
        self._root, self._index, self._config, self._lock = root, index, config, lock
        self._segment_bytes, self._codec = segment_bytes, codec
        self._guard = threading.Lock()
        self._is_open = True
        #: By the start of the slice (ms).
        self._ends = dict[int, _End]()
        #: Those to which the current change has written, by the number of the segment.
        self._changed = dict[int, _End]()
        #: True: a change has begun, and was neither committed nor rolled back.
        self._is_changing = False
        files = segments.files_in(root)
        self._next_number = 1 + max([*files, index.last_number])
        #: Segments that may not be on the disk yet.
        self._unflushed = {*files.values()} if lock.is_unflushed else set[Path]()
        #: True: the index may have rows of forgotten pages.
        self._has_rows = True
        #: Slices that began before this (ms) were removed. (The clock may have been set back since.)
        self._forgotten = 0
        #: The sequence number of the last put or delete.
        self._sequence = max((segment.sequence for segment in index.segments()), default=0)
        self._forget_old()
        lock.is_unflushed = True

    def put(
        self, pages: Iterable[Page], *, newer: bool = False, since: Mapping[int, int] | None = None
    ) -> Counter[str]:
        """Store the pages in one change of the index. Return how many were "stored", "replaced" and "present".

        With ``newer``, a page is not stored but "present" if the stored one was fetched at the same time or later. It is
        "replaced" if both were fetched at the same time, and the stored one is beyond the sizes ``since`` of the segments.
        Raise OSError if there is no room for the pages; then nothing has changed.
        """
        counts = Counter[str]()
        with self._changing():
            for page, slice in [(page, self._config.slice_of(page.at)) for page in pages]:
                fingerprint, at = fingerprint_of(page.address), micros(page.at)
                stored = self._index.find(fingerprint)
                outcome = _outcome(at, stored, since) if newer else "stored"
                counts[outcome] += 1
                if outcome == "present":
                    continue
                number, end = self._next_sequence(), self._end_of(slice)
                data = record.of_page(page, number, end.identity, self._codec)
                self._index.put(fingerprint, *self._append(end, data, number), at)
                if stored is not None and stored.start > slice.start:
                    # Else the old page would come back when this slice has left and the index is rebuilt. Its number is
                    # lower, and it is written later: if the process is killed in between, there is one of the pages.
                    self._append_deletion(stored.start, fingerprint, number - 1)
            if self._has_rows:
                self._has_rows = self._index.sweep(_SWEPT_ROWS * counts.total())
        return counts

    def delete(self, fingerprint: bytes) -> bool:
        """Delete the page with this address. Return False if there was none."""
        with self._changing():
            stored = self._index.find(fingerprint, self._config.since())
            if stored is not None:
                self._append_deletion(stored.start, fingerprint, self._next_sequence())
                self._index.remove(fingerprint)
        return stored is not None

    def flush(self) -> None:
        """Wait until all changes are on the disk."""
        with self._guard:
            self._check_open()
            self._flush()

    def close(self) -> None:
        """Wait until all changes are on the disk, and release the lock."""
        with self._guard:
            self._is_open = False
            try:
                self._roll_back()
                self._flush()
                self._lock.is_unflushed = False
            finally:
                self._lock.close()

    def abandon(self) -> None:
        """Close the lock's file in a forked child. The lock stays the parent's."""
        self._lock.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make the changes of the block whole or not at all."""
        with self._guard:
            self._check_open()
            self._roll_back()
            self._is_changing = True
            try:
                self._forget_old()
                with self._index.transaction():
                    yield
                    for end in self._changed.values():
                        self._unflushed.add(end.path)
                        self._index.put_segment(end.segment)
            except BaseException:
                self._roll_back()
                raise
            self._changed.clear()
            self._is_changing = False

    def _roll_back(self) -> None:
        """Undo the open change, if any: one that has failed, or whose roll-back has. Cut off what the index does not know."""
        if not self._is_changing:
            return
        self._index.abort()
        self._ends.clear()
        known = {segment.number: segment.size for segment in self._index.segments()}
        for number, end in self._changed.items():
            if number in known:
                os.truncate(end.path, known[number])
            else:
                end.path.unlink(missing_ok=True)
        self._changed.clear()
        self._is_changing = False

    def _check_open(self) -> None:
        if not self._is_open:  # closed by another thread
            raise TBloomError(f"the page store {str(self._root)!r} is closed")

    def _flush(self) -> None:
        self._index.flush()  # first, because it raises if the folder was moved
        for path in self._unflushed:
            with suppress(FileNotFoundError):  # its slice has left the window
                flush(path)
        self._unflushed.clear()
        flush(self._root)

    def _next_sequence(self) -> int:
        # By the clock, because the slice with the highest number may be forgotten.
        # Two apart: the number below it is for the deletion of a page that was replaced.
        self._sequence = max(self._sequence + 2, time.time_ns() // 1000)
        return self._sequence

    def _end_of(self, slice: Slice) -> _End:
        """Return where the next record of a slice goes."""
        end = self._ends.get(slice.start) or self._last_end(slice.start)
        if end is None or end.segment.size >= self._segment_bytes:
            return self._new_end(slice)
        return end

    def _append(self, end: _End, data: bytes, sequence: int = 0) -> tuple[int, int, int]:
        """Append a record, and return the number of its segment, its offset and length. A segment's first one has no sequence number.

        Raise TBloomError if another program has changed the file.
        """
        had = end.segment
        fd = os.open(end.path, os.O_WRONLY)
        try:
            size, view = os.fstat(fd).st_size, memoryview(data)
            if size != had.size:
                raise segments.size_error(end.path, size, had.size)
            new = had._replace(
                size=size + len(data),
                records=had.records + (sequence > 0),
                sequence=max(had.sequence, sequence),
            )
            self._changed[had.number] = self._ends[had.start] = end._replace(segment=new)
            while view:
                written = os.pwrite(fd, view, size)
                size, view = size + written, view[written:]
        finally:
            os.close(fd)
        return had.number, had.size, len(data)

    def _append_deletion(self, start: int, fingerprint: bytes, sequence: int) -> None:
        end = self._end_of(self._config.window.slice_at(start))
        data = record.of_deletion(fingerprint, sequence, end.identity, self._codec)
        self._append(end, data, sequence)

    def _last_end(self, start: int) -> _End | None:
        """Return the end of the slice's last segment; None if there is none, or if it holds records of another codec."""
        known = [one for one in self._index.segments(start) if one.start == start]
        if not known or not known[-1].name.endswith(SUFFIXES[self._codec]):
            return None
        path = self._root / known[-1].name
        identity = segments.first_of(path).segment
        return None if identity is None else _End(path, identity, known[-1])

    def _new_end(self, slice: Slice) -> _End:
        """Begin a segment."""
        number, identity = self._next_number, record.new_id()
        self._next_number += 1  # first, because an interrupt may come at any line
        name = segments.name_of(slice.label, number, SUFFIXES[self._codec])
        end = _End(self._root / name, identity, Segment(number, name, slice.start))
        end.path.open("xb").close()  # raises if another program has made the file
        self._changed[number] = end
        self._index.put_segment(end.segment)  # so that this change finds its pages
        own = (record.PARAMETERS, self._config.stored), (record.START, f"{slice.start}")
        data = record.of_info(identity, self._codec, (("WARC-Filename", name), *own))
        self._append(end, data)
        return self._ends[slice.start]

    def _forget_old(self) -> None:
        """Remove the slices that have left the window. Their files go first, to make room if the disk is full."""
        since = self._config.since()
        if since == self._forgotten:
            return
        old = [segment for segment in self._index.segments() if segment.start < since]
        if old:
            self._ends.clear()
            for path in [self._root / one.name for one in old]:
                path.unlink(missing_ok=True)
                self._unflushed.discard(path)
            self._index.forget(since)
            self._has_rows = True
        self._forgotten = since
