"""The SQLite database of an index, as readers, a writer and forked children of a process use it.

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tbloom.errors import TBloomError

INDEX_NAME = re.compile(r"index-([1-9][0-9]*)\.sqlite(\.new)?(-wal|-shm|-journal)?")
#: Seconds to wait for a lock: another program may have the database open.
_TIMEOUT = 60
#: Bytes of a page of the database: a put writes a page or two, and with 4 KB, SQLite's own, three times as many bytes.
_PAGE_BYTES = 1024
#: Once the log has so many pages, a commit copies it into the database, and waits for the disk.
_LOG_PAGES = 2000


class Database:
    """The newest index in a store's folder. Threads may share it."""

    def __init__(self, root: Path, *, writes: bool = False) -> None:
        """Leave the file closed until it is used."""
        self.root = root
        self._writes = writes
        #: The index that is being built, until it is complete.
        self._new: Path | None = None
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._path = root
        self._file: os.stat_result | None = None
        self._is_open = True
        with _guard:
            _databases.add(self)

    @contextmanager
    def creating(self, schema: str) -> Iterator[None]:
        """Build a new index in the block. At its end, it replaces the earlier ones."""
        # SQLite would take a log of an earlier database with this name for its own.
        remove_stale(self.root)
        newest = newest_index(self.root)
        number = int(newest.stem.partition("-")[2]) if newest else 0
        new = self._new = self.root / f"index-{number + 1}.sqlite.new"
        new.write_bytes(b"")
        try:
            with self._lock, translated_errors(self.root):
                self._current().executescript(schema)
            yield
            with self._lock, translated_errors(self.root):
                # Before the rename: a process that is killed here leaves a journal, which would keep readers out.
                self._current().execute("PRAGMA journal_mode = WAL")
                self._disconnect()
                flush(new)
                new.rename(new.with_suffix(""))
                self._new = None
                flush(self.root)
                self._current()
        finally:
            # If the new one was not finished, remove that: it may have filled the disk.
            remove_stale(self.root)

    def execute(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement, and return its rows."""
        with self._lock:
            try:
                return self._current().execute(statement, values).fetchall()
            except sqlite3.Error as error:  # not by ``translated_errors``, which takes longer
                connection = self._connection
                if connection is None or connection.in_transaction or self._is_newest():
                    raise _translated(self.root, error) from error
            # Another index has replaced this one, and removed its log.
            return self.execute(statement, *values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the changes of the block at its end, or roll them back if it raises. A fork waits for the end."""
        with self._lock, translated_errors(self.root):
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def abort(self) -> None:
        """Roll back a transaction that Ctrl-C may have left open."""
        with self._lock:
            if self._connection is not None:
                self._connection.rollback()

    def flush(self) -> None:
        """Wait until the index is on the disk."""
        with self._lock, translated_errors(self.root):
            self._current().execute("PRAGMA wal_checkpoint(PASSIVE)")  # as far as readers let it
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
        """Return the connection; a new one after a fork, or if another index has replaced this one."""
        known = self._connection
        if known is not None and (known.in_transaction or self._is_newest()):
            return known
        if not self._is_open:  # closed while the caller iterates over its pages
            raise TBloomError(f"the page store {str(self.root)!r} is closed")
        self._disconnect()
        while self._connection is None:
            path = self._new or newest_index(self.root)
            if path is None:
                raise TBloomError(
                    f"{str(self.root)!r} has no index any more: it was moved or removed while it was open"
                )
            try:
                self._open(path)
            except (sqlite3.Error, FileNotFoundError):
                if self._new or path == newest_index(self.root):
                    raise
        return self._connection

    def _open(self, path: Path) -> None:
        self._path = path
        connection = _connect(path, "rw" if self._writes else "ro")
        if self._writes:
            for pragma in (
                f"page_size = {_PAGE_BYTES}",  # has an effect in an empty database only
                f"journal_mode = {'OFF' if self._new else 'WAL'}",
                f"synchronous = {'OFF' if self._new else 'NORMAL'}",
                f"wal_autocheckpoint = {_LOG_PAGES}",
                "recursive_triggers = ON",  # so that INSERT OR REPLACE runs the trigger "removed" too
            ):
                connection.execute(f"PRAGMA {pragma}")
        self._connection, self._file = connection, path.stat()

    def _is_newest(self) -> bool:
        """Return True unless the database file is gone, or has been replaced."""
        try:
            now = os.stat(self._path)  # noqa: PTH116 - called by every verb; Path takes longer
        except OSError:
            return False
        return self._file is not None and os.path.samestat(now, self._file)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        keeper = None
        if self._writes and not self._new:
            # The last connection that may write would remove the log's files, and readers without write permission
            # could not make them again.
            with suppress(sqlite3.Error):
                keeper = _connect(self._path, "ro")
        connection.close()
        if keeper is not None:
            keeper.close()

    def before_fork(self) -> None:
        """Wait for other threads, and close the connection, which a child must not share."""
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._disconnect()

    def after_fork(self, *, is_child: bool) -> None:
        """Let threads go on. In a child, the database is read-only from now on."""
        if is_child:
            self._writes = False
            self._disconnect()  # a snapshot's connection, which stayed open because of its transaction
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


@contextmanager
def translated_errors(root: Path) -> Iterator[None]:
    """Raise SQLite's errors as OSError or TBloomError."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(root, error) from error


@contextmanager
def temporary_errors() -> Iterator[None]:
    """Raise the errors of SQLite's temporary files as OSError."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(errno.ENOSPC, f"a temporary file can't be written: {error}") from error


def _translated(root: Path, error: sqlite3.Error) -> Exception:
    """Return SQLite's error as OSError or TBloomError."""
    text, path = str(error), newest_index(root) or root
    # The module's own errors have no code; the last byte of an extended code is the primary one.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(code)
    if number is None and not os.access(path, os.R_OK):
        number = errno.EACCES
    if number is not None:
        return OSError(number, os.strerror(number), str(path))
    if code == sqlite3.SQLITE_BUSY:
        return TBloomError(f"another program has locked {str(path)!r} for {_TIMEOUT} seconds")
    return unusable_index(root, text)


def unusable_index(root: Path, why: str) -> TBloomError:
    """Return the error for an index that can't be used."""
    path = newest_index(root) or root
    return TBloomError(
        f"the index {str(path)!r} can't be used: {why}; rebuild it from the segments with 'tbloom pages rebuild'"
    )


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def newest_index(root: Path) -> Path | None:
    """Return the file of the store's newest index; None if there is none."""
    matches = (INDEX_NAME.fullmatch(path.name) for path in root.glob("index-*.sqlite"))
    numbers = [int(match[1]) for match in matches if match]
    return root / f"index-{max(numbers)}.sqlite" if numbers else None


def remove_stale(root: Path) -> None:
    """Remove all indexes but the newest."""
    newest = newest_index(root)
    for path in sorted(root.glob("index-*")):  # a database before its log
        match = INDEX_NAME.fullmatch(path.name)
        if match and (newest is None or match[2] or f"index-{match[1]}.sqlite" != newest.name):
            path.unlink(missing_ok=True)


# Reentrant: a signal may fork.
_guard = threading.RLock()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
#: The databases that a fork in progress has locked.
_held: list[Database] = []


def _before_fork() -> None:
    """Close all connections: SQLite's connections and locks must not be in two processes."""
    _guard.acquire()
    _held.extend(_databases)
    for database in _held:
        database.before_fork()


def _after_fork(*, is_child: bool) -> None:
    for database in _held:
        database.after_fork(is_child=is_child)
    _held.clear()
    _guard.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(is_child=False),
        after_in_child=lambda: _after_fork(is_child=True),
    )
