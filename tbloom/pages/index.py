"""The index: where each page is. It is the SQLite database ``index.sqlite`` of a store.

::

    meta      the parameters that all users of the store must agree on (see ``config``)
    segments  the WARC files, each with what the index knows of it: see ``Segment``
    pages     segment and offset -> length, time, and BLAKE2b of the address, by which a page is found

To forget a slice, only its rows in ``segments`` are marked. Later puts remove the rows of its pages, a few each.

A commit does not wait for the disk (``synchronous=NORMAL``): it survives a killed process. After a power cut, the last
commits may be missing.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tbloom.engine.owned import OwnFile, leave_open
from tbloom.errors import TBloomError
from tbloom.pages.segments import Segment

#: The file that a writer locks.
LOCK = "lock"
#: The index, with the files that SQLite and a rebuild make beside it.
NAME = "index.sqlite"
ANY_NAME = re.compile(rf"{re.escape(NAME)}(\.new)?(-wal|-shm|-journal)?")
_SCHEMA = (
    "CREATE TABLE meta (parameters TEXT NOT NULL)",
    """CREATE TABLE segments (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
    records INTEGER NOT NULL, sequence INTEGER NOT NULL, pages INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE pages (
    segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, at INTEGER NOT NULL,
    address BLOB NOT NULL, PRIMARY KEY (segment, offset)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX addresses ON pages (address)",
    """CREATE TRIGGER added AFTER INSERT ON pages BEGIN
    UPDATE segments SET pages = pages + 1 WHERE number = new.segment; END""",
    """CREATE TRIGGER removed AFTER DELETE ON pages BEGIN
    UPDATE segments SET pages = pages - 1 WHERE number = old.segment; END""",
)
_FIND = """
SELECT start, name, segment, offset, length, at FROM pages JOIN segments ON number = segment
WHERE address = ? AND start >= ?
"""
_SEGMENTS = """
SELECT number, name, start, size, records, sequence, pages FROM segments WHERE start >= ? ORDER BY start, number
"""
_PUT_SEGMENT = """
INSERT INTO segments (number, name, start, size, records, sequence) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET size = excluded.size, records = excluded.records, sequence = excluded.sequence
"""
_ROWS = """
SELECT offset, length, at, address FROM pages WHERE segment = ? AND offset > ? AND offset < ? ORDER BY offset LIMIT ?
"""
_SWEEP = """
DELETE FROM pages WHERE segment = ?1 AND offset IN
(SELECT offset FROM pages WHERE segment = ?1 ORDER BY offset LIMIT ?2)
"""
#: The start of the slice of a segment that was forgotten. All others are later.
_GONE = -(1 << 62)
_FIRST = _GONE + 1
#: So many rows of pages are read at a time.
_ROWS_READ = 256
#: Seconds to wait for a lock: another program may have the database open.
_TIMEOUT = 60
#: Bytes of a page of the database: a put writes a page or two, and with 4 KB, SQLite's own, three times as many bytes.
_PAGE_BYTES = 1024
#: Once the log has so many pages, a commit copies it into the database, and waits for the disk.
_LOG_PAGES = 2000
#: KB of memory for a new index while it is filled.
_CACHE_KB = 1 << 16


class Place(NamedTuple):
    """The place of a page in the files. Places sort in the order in which they are read fastest."""

    #: The start of its slice (ms), and the name of its file.
    start: int
    name: str
    segment: int
    offset: int
    length: int
    #: The time when it was fetched (microseconds since the epoch).
    at: int


class Row(NamedTuple):
    """A page in a segment."""

    offset: int
    length: int
    at: int
    fingerprint: bytes


class Index:
    """The index of a store. Threads may share it. The database is closed until it is used, and during a fork."""

    def __init__(self, root: Path, *, writes: bool = False, name: str = NAME) -> None:
        self.root = root
        self._path = root / name
        self._writes = writes
        self._is_new = name != NAME
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None
        #: An open file beside those of the connection: what closes their descriptors closes this one, too.
        self._beside: OwnFile | None = None
        self._is_open = True
        with _guard:
            _indexes.add(self)

    @classmethod
    @contextmanager
    def create(cls, root: Path, parameters: str) -> Iterator[Index]:
        """Yield a new index. It replaces an earlier one at the end of the block."""
        new = root / f"{NAME}.new"
        remove_unfinished(root)
        new.touch()
        try:
            with closing(cls(root, writes=True, name=new.name)) as index:
                for statement in _SCHEMA:
                    index.execute(statement)
                index.execute("INSERT INTO meta VALUES (?)", parameters)
                yield index
                index.execute("PRAGMA journal_mode = WAL")
            flush(new)
            # Before the new one has its name: SQLite would take the log of the old one for its own.
            for path in sorted(root.iterdir()):  # a database before its log
                if ANY_NAME.fullmatch(path.name) and not path.name.startswith(new.name):
                    path.unlink(missing_ok=True)
            new.rename(root / NAME)
            flush(root)
        finally:
            remove_unfinished(root)  # it may have filled the disk

    @property
    def parameters(self) -> str:
        """The stored parameters."""
        return "".join(str(value) for (value,) in self.execute("SELECT parameters FROM meta"))

    def find(self, fingerprint: bytes, since: int = _FIRST) -> Place | None:
        """Return the place of the page with this address; None if there is none, or its slice begins before ``since`` (ms)."""
        return next(map(Place._make, self.execute(_FIND, fingerprint, since)), None)

    def segments(self, since: int = _FIRST) -> list[Segment]:
        """Return the segments of the slices that begin at ``since`` (ms) or later, slice by slice."""
        return [Segment._make(row) for row in self.execute(_SEGMENTS, since)]

    def rows(self, segment: Segment) -> Iterator[Row]:
        """Yield the current pages of a segment, up to the size that it had, in the order of the file.

        One that is replaced or deleted meanwhile may come or not.
        """
        rows, last = [Row(0, 0, 0, b"")], -1
        while rows:
            found = self.execute(_ROWS, segment.number, last, segment.size, _ROWS_READ)
            rows = [*map(Row._make, found)]
            yield from rows
            last = rows[-1].offset if rows else last

    @property
    def last_number(self) -> int:
        """The highest number of a segment, also of those of which only rows of pages are left."""
        [(number,)] = self.execute("SELECT max(number) FROM segments")
        return int(number or 0)

    def put(self, fingerprint: bytes, segment: int, offset: int, length: int, at: int) -> None:
        """Add a page, or replace the one with this address."""
        values = segment, offset, length, at, fingerprint
        self.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)", *values)

    def remove(self, fingerprint: bytes) -> None:
        """Remove a page."""
        self.execute("DELETE FROM pages WHERE address = ?", fingerprint)

    def put_segment(self, segment: Segment) -> None:
        """Add a segment, or update it."""
        self.execute(_PUT_SEGMENT, *segment[:-1])

    def drop_segment(self, number: int) -> None:
        """Remove a segment and its pages."""
        self.execute("DELETE FROM pages WHERE segment = ?", number)
        self.execute("DELETE FROM segments WHERE number = ?", number)

    def forget(self, since: int) -> None:
        """Forget the slices that begin before ``since`` (ms)."""
        self.execute("UPDATE segments SET start = ? WHERE start < ?", _GONE, since)

    def sweep(self, count: int) -> bool:
        """Remove up to ``count`` rows of pages of forgotten slices. Return False if there are none."""
        for (number,) in self.execute("SELECT number FROM segments WHERE start = ? LIMIT 1", _GONE):
            self.execute(_SWEEP, number, count)
            self.execute("DELETE FROM segments WHERE number = ? AND pages <= 0", number)
            return True
        return False

    def execute(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement, and return its rows."""
        with self._lock:
            try:
                return self._current().execute(statement, values).fetchall()
            except sqlite3.Error as error:  # not by ``_translating``, which takes longer
                raise self._translated(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the changes of the block at its end, or roll them back if it raises. A fork waits for the end."""
        with self._lock:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._check_beside()
                self._check_same()
                self.execute("COMMIT")
            except BaseException:
                self.abort()
                raise

    def abort(self) -> None:
        """Roll back a transaction that Ctrl-C may have left open."""
        with self._lock:
            if self._connection is not None:
                self._connection.rollback()

    def flush(self) -> None:
        """Wait until the index is on the disk."""
        self.execute("PRAGMA wal_checkpoint(PASSIVE)")  # as far as readers let it
        flush(Path(f"{self._path}-wal"))

    def close(self) -> None:
        """Close the index."""
        with self._lock:
            self._is_open = False
            self._disconnect()

    @property
    def bytes(self) -> int:
        """The size of the index on the disk."""
        files = (self._path, Path(f"{self._path}-wal"))
        return sum(file.stat().st_blocks * 512 for file in files if file.exists())

    def _current(self) -> sqlite3.Connection:
        """Return the connection; a new one after a fork, or in a reader, if a rebuild has replaced the index."""
        known = self._connection
        if known is not None and known.in_transaction:  # it is checked at its end
            return known
        self._check_beside()
        if known is not None and self._is_same():
            return known
        if self._writes and self._file is not None:  # also after a fork, for which it was closed
            self._check_same()
        if not self._is_open:  # closed while the caller iterates over its pages
            raise TBloomError(f"the page store {str(self.root)!r} is closed")
        self._disconnect()
        try:
            self._file = self._path.stat()
        except FileNotFoundError:
            raise TBloomError(
                f"{str(self.root)!r} has no index any more: it is being rebuilt, or was moved or removed"
            ) from None
        connection = _connect(self._path, "rw" if self._writes else "ro")
        for pragma in (
            f"page_size = {_PAGE_BYTES}",  # has an effect in an empty database only
            f"journal_mode = {'OFF' if self._is_new else 'WAL'}",
            f"synchronous = {'OFF' if self._is_new else 'NORMAL'}",
            f"cache_size = {-_CACHE_KB if self._is_new else -2000}",
            f"wal_autocheckpoint = {_LOG_PAGES}",
            "recursive_triggers = ON",  # so that INSERT OR REPLACE runs the trigger "removed" too
        ):
            if self._writes:
                connection.execute(f"PRAGMA {pragma}")
        self._connection = connection
        with suppress(OSError):  # other users may not read it
            beside = self.root / LOCK
            self._beside = OwnFile(os.open(beside, os.O_RDONLY), beside)
        return connection

    def _is_same(self) -> bool:
        """Return True unless the database file is gone, or has been replaced."""
        try:
            now = os.stat(self._path)  # noqa: PTH116 - called by every verb; Path takes longer
        except OSError:
            return False
        return self._file is not None and os.path.samestat(now, self._file)

    def _check_beside(self) -> None:
        """Raise TBloomError if descriptors of the connection may have been closed, and leave it as it is."""
        if self._beside is not None and not self._beside.is_ours:
            self._disconnect()
            self._beside.check()

    def _check_same(self) -> None:
        """Raise TBloomError if a writer's database is gone, or has been replaced: what it writes would be lost."""
        if not self._is_same():
            raise TBloomError(
                f"the index {str(self._path)!r} was deleted or replaced while it was written: close the store, and run "
                "'tbloom pages rebuild', which finds all pages that were put"
            )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._beside is not None:
            if not self._beside.is_ours:
                leave_open(connection)
                return
            self._beside.close()
            self._beside = None
        keeper = None
        if self._writes and not self._is_new:
            # The last connection that may write would remove the log's files, and readers without write permission
            # could not make them again.
            with suppress(sqlite3.Error):
                keeper = _connect(self._path, "ro")
        connection.close()
        if keeper is not None:
            keeper.close()

    def _translated(self, error: sqlite3.Error) -> Exception:
        """Return SQLite's error as OSError or TBloomError."""
        path = str(self._path)
        # The module's own errors have no code; the last byte of an extended code is the primary one.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        number = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(code)
        if number is None and not os.access(path, os.R_OK):
            number = errno.EACCES
        if number is not None:
            return OSError(number, os.strerror(number), path)
        if code == sqlite3.SQLITE_BUSY:
            return TBloomError(f"another program has locked {path!r} for {_TIMEOUT} seconds")
        return TBloomError(
            f"the index {path!r} can't be used: {error}; rebuild it from the segments with 'tbloom pages rebuild'"
        )

    def before_fork(self) -> None:
        """Wait for other threads, and close the connection, which a child must not share."""
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._disconnect()

    def after_fork(self, *, is_child: bool) -> None:
        """Let threads go on. In a child, the database is read-only from now on."""
        if is_child:
            self._writes = False
            self._disconnect()  # if a signal has forked within a transaction
        self._lock.release()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    connection = sqlite3.connect(
        uri, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        connection.execute("PRAGMA schema_version").fetchall()  # opens the files
    except BaseException:
        connection.close()
        raise
    return connection


def remove_unfinished(root: Path) -> None:
    """Remove the index of a rebuild that was killed."""
    for path in root.glob(f"{NAME}.new*"):
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Reentrant: a signal may fork.
_guard = threading.RLock()
_indexes: weakref.WeakSet[Index] = weakref.WeakSet()
#: The indexes that a fork in progress has locked.
_held: list[Index] = []


def _before_fork() -> None:
    """Close all connections: SQLite's connections and locks must not be in two processes."""
    _guard.acquire()
    _held.extend(_indexes)
    for index in _held:
        index.before_fork()


def _after_fork(*, is_child: bool) -> None:
    for index in _held:
        index.after_fork(is_child=is_child)
    _held.clear()
    _guard.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(is_child=False),
    after_in_child=lambda: _after_fork(is_child=True),
)
