"""The writer of a store: it appends records, and adds them to the index.

One process writes at a time: it locks the file ``lock`` (``flock``), which has its process ID.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tbloom.errors import ConfigError, StoreLocked, TBloomError
from tbloom.pages import record
from tbloom.pages.appending import OpenSegments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index, Place
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.window import Slice

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"
#: The file always has this size, so that a process ID can be written on a full disk.
_LOCK_BYTES = 128
#: A batch ends with the page that reaches one of these limits, because a batch is in memory.
BATCH_PAGES, BATCH_BYTES = 256, 1 << 22
#: Bytes of memory that a header takes beside its text, at least.
_HEADER_BYTES = 200
#: A deletion is written twice: if one of its records is damaged, a rebuild must not bring the page back.
_COPIES = 2


def batches(pages: Iterable[Page | None]) -> Iterator[list[Page]]:
    """Yield lists of pages to be stored together. A None among the pages ends a list."""
    batch: list[Page] = []
    size = 0
    for page in pages:
        if page is not None:
            batch.append(page)
            headers = (*page.headers, *page.fields)
            size += len(page.body) + sum(
                _HEADER_BYTES + len(name) + len(text) for name, text in headers
            )
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
        if fcntl is None:
            raise ConfigError("path", str(root), "a system with file locks, which this one lacks")
        self._fd = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self._pid = os.getpid()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._fd, b"%-*d" % (_LOCK_BYTES, self._pid), 0)
        except BlockingIOError:
            os.close(self._fd)
            raise StoreLocked(str(root), _pid_of_writer(root)) from None
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Release the lock."""
        if self._pid == os.getpid():  # in a forked child the lock is the parent's
            os.pwrite(self._fd, b" " * _LOCK_BYTES, 0)
            # A child that another thread has forked may still have the file open.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def _pid_of_writer(root: Path) -> object:
    """Return the process ID in the file; None if it has none."""
    try:
        return int((root / _LOCK).read_bytes())
    except ValueError:
        return None


class Writer:
    """Changes a store. It holds the store's lock until ``close``."""

    def __init__(
        self,
        root: Path,
        index: Index,
        config: PagesConfig,
        lock: WriterLock,
        open_segments: OpenSegments,
    ) -> None:
        self._root, self._index, self._config, self._lock = root, index, config, lock
        self._guard = threading.Lock()
        self._segments = open_segments
        #: Slices that began before this (ms) were removed. (The clock may have been set back since.)
        self._forgotten = 0
        self._is_open = True
        #: True: a change has begun, and was neither committed nor rolled back.
        self._is_changing = False
        #: The sequence number of the last put or delete.
        self._sequence = max((segment.sequence for segment in index.segments()), default=0)
        self._forget_old()

    def sizes(self) -> dict[int, int]:
        """Return the present size of each segment, by its number. Later records are beyond it."""
        return {segment.number: segment.size for segment in self._index.segments()}

    def put(
        self, pages: Iterable[Page], *, newer: bool = False, since: Mapping[int, int] | None = None
    ) -> Counter[str]:
        """Store the pages in one change of the index. Return how many were "stored", "replaced" and "present".

        With ``newer``, a page is not stored but "present" if the stored one was fetched at the same time or later. It is
        "replaced" if both were fetched at the same time, and the stored one is beyond the sizes ``since`` (see ``sizes``).
        Raise OSError if there is no room for the pages; then nothing has changed.
        """
        counts = Counter[str]()
        with self._changing():
            for page, slice in [(page, self._config.slice_of(page.at)) for page in pages]:
                fingerprint = fingerprint_of(page.address)
                stored = self._index.find(fingerprint)
                outcome = _outcome(micros(page.at), stored, since) if newer else "stored"
                counts[outcome] += 1
                if outcome == "present":
                    continue
                sequence = self._next_sequence()
                self._put(slice, page, fingerprint)
                if stored is not None and stored.start > slice.start:
                    # Else the old page would come back when this slice has left and the index is rebuilt.
                    self._append_deletion(stored, fingerprint, sequence)
        return counts

    def delete(self, fingerprint: bytes) -> bool:
        """Delete the page with this address. Return False if there was none."""
        with self._changing():
            stored = self._index.find(fingerprint, self._config.since())
            if stored is not None:
                self._append_deletion(stored, fingerprint, self._next_sequence())
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
            self._check_open()
            self._is_open = False
            try:
                self._roll_back()
                self._flush()
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
                    self._segments.update_index()
            except BaseException:
                self._roll_back()
                raise
            self._segments.finish()
            self._is_changing = False

    def _roll_back(self) -> None:
        """Roll back the open change, if any: one that has failed, or whose roll-back has."""
        if self._is_changing:
            self._index.abort()
            self._segments.roll_back()
            self._is_changing = False

    def _check_open(self) -> None:
        if not self._is_open:  # closed by another thread
            raise TBloomError(f"the page store {str(self._root)!r} is closed")

    def _flush(self) -> None:
        self._index.flush()  # first, because it raises if the folder was moved
        self._segments.flush()

    def _next_sequence(self) -> int:
        # By the clock, because the slice with the highest number may be forgotten, and its segments are imported elsewhere.
        self._sequence = max(self._sequence + 1, time.time_ns() // 1000)
        return self._sequence

    def _put(self, slice: Slice, page: Page, fingerprint: bytes) -> None:
        appender, sequence = self._segments.appender_for(slice), self._next_sequence()
        data = record.of_page(page, sequence, appender.identity, self._segments.codec)
        offset = appender.append(data, sequence)
        number, at = appender.segment.number, micros(page.at)
        place = Place(slice.start, appender.segment.name, number, offset, len(data), at)
        self._index.put(fingerprint, place)

    def _append_deletion(self, stored: Place, fingerprint: bytes, sequence: int) -> None:
        """Append the deletion of a page to the slice that had the page."""
        appender = self._segments.appender_for(self._config.window.slice_at(stored.start))
        codec = self._segments.codec
        for _ in range(_COPIES):
            deletion = record.of_deletion(fingerprint, sequence, appender.identity, codec)
            appender.append(deletion, sequence)

    def _forget_old(self) -> None:
        """Remove the slices that have left the window. Their files go first, to make room if the disk is full."""
        since = self._config.since()
        if since == self._forgotten:
            return
        old = [segment for segment in self._index.segments() if segment.start < since]
        if old:
            self._segments.remove([self._root / one.name for one in old])
            self._index.forget(since)
        self._forgotten = since
