"""The SQLite database of an index, as readers, a writer and forked children of a process use it.

Commits are not waited for (``synchronous=NORMAL``): they survive the death of a process. After that of the machine the
index is that of some moment before.
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
#: Pages from which on the log is copied into the database, and waited for.
_LOG_PAGES = 2000


class Database:
    """The newest index in a store's folder. Threads may share it."""

    def __init__(self, root: Path, *, writes: bool = False) -> None:
        """It is opened when it is used."""
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
        """Begins another index, and puts it in the place of the earlier ones at the end of the block."""
        # SQLite would take a log of an earlier database with this name for its own.
        remove_stale(self.root)
        newest = newest_of(self.root)
        number = int(newest.stem.partition("-")[2]) if newest else 0
        new = self._new = self.root / f"index-{number + 1}.sqlite.new"
        new.write_bytes(b"")
        try:
            with self._lock, errors(self.root):
                self._current().executescript(schema)
            yield
            with self._lock, errors(self.root):
                # Before it has its name: who is killed meanwhile leaves a journal, which would keep readers out.
                self._current().execute("PRAGMA journal_mode = WAL")
                self._disconnect()
                flush(new)
                new.rename(new.with_suffix(""))
                self._new = None
                flush(self.root)
                self._current()
        finally:
            # Or this one, where it was not finished: it may have filled the disk.
            remove_stale(self.root)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement."""
        with self._lock:
            try:
                return self._current().execute(statement, values).fetchall()
            except sqlite3.Error as error:  # without ``errors``, which takes longer
                connection = self._connection
                if connection is None or connection.in_transaction or self._is_newest():
                    raise _raised(self.root, error) from error
            # Another index has replaced this one, and removed its log.
            return self.rows(statement, *values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes that are committed at the end of the block, if nothing is raised; a fork waits for it."""
        with self._lock, errors(self.root):
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def abort(self) -> None:
        """Ends a change that Ctrl-C may have left open."""
        with self._lock:
            if self._connection is not None:
                self._connection.rollback()

    def flush(self) -> None:
        """Waits until the index is on the disk."""
        with self._lock, errors(self.root):
            self._current().execute("PRAGMA wal_checkpoint(PASSIVE)")  # as far as readers let it
            flush(Path(f"{self._path}-wal"))

    def close(self) -> None:
        """Closes the index."""
        with self._lock:
            self._is_open = False
            self._disconnect()

    @property
    def bytes(self) -> int:
        """Its size on the disk."""
        files = (self._path, Path(f"{self._path}-wal"))
        return sum(file.stat().st_blocks * 512 for file in files if file.exists())

    def _current(self) -> sqlite3.Connection:
        """The connection; a new one after a fork, and where another index has taken the place of this one."""
        known = self._connection
        if known is not None and (known.in_transaction or self._is_newest()):
            return known
        if not self._is_open:  # closed while its pages were listed
            raise TBloomError(f"the page store {str(self.root)!r} is closed")
        self._disconnect()
        while self._connection is None:
            path = self._new or newest_of(self.root)
            if path is None:
                raise TBloomError(
                    f"{str(self.root)!r} has no index any more: it was moved or removed while it was open"
                )
            try:
                self._open(path)
            except (sqlite3.Error, FileNotFoundError):
                if self._new or path == newest_of(self.root):
                    raise
        return self._connection

    def _open(self, path: Path) -> None:
        self._path = path
        connection = _connect(path, "rw" if self._writes else "ro")
        if self._writes:
            for pragma in (
                f"page_size = {_PAGE_BYTES}",  # of an empty database
                f"journal_mode = {'OFF' if self._new else 'WAL'}",
                f"synchronous = {'OFF' if self._new else 'NORMAL'}",
                f"wal_autocheckpoint = {_LOG_PAGES}",
                "recursive_triggers = ON",  # of INSERT OR REPLACE too
            ):
                connection.execute(f"PRAGMA {pragma}")
        self._connection, self._file = connection, path.stat()

    def _is_newest(self) -> bool:
        """False: the database file is gone, or another one."""
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
        """Closes the connection, which a child must not have; waits for other threads."""
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._disconnect()

    def after_fork(self, *, is_child: bool) -> None:
        """Goes on; in a child, as a reader."""
        if is_child:
            self._writes = False
            self._disconnect()  # that of a snapshot, which could not be closed
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
def errors(root: Path) -> Iterator[None]:
    """Raises SQLite's errors as the system's, or as TBloomError."""
    try:
        yield
    except sqlite3.Error as error:
        raise _raised(root, error) from error


def _raised(root: Path, error: sqlite3.Error) -> Exception:
    """SQLite's error as the system's, or as TBloomError."""
    text, path = str(error), newest_of(root) or root
    # The module's own errors have no code; the last byte of an extended code is the primary one.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(code)
    if number is None and not os.access(path, os.R_OK):
        number = errno.EACCES
    if number is not None:
        return OSError(number, os.strerror(number), str(path))
    if code == sqlite3.SQLITE_BUSY:
        return TBloomError(f"another program has locked {str(path)!r} for {_TIMEOUT} seconds")
    return damaged(root, text)


def damaged(root: Path, why: str) -> TBloomError:
    """The error of an index that can't be used."""
    path = newest_of(root) or root
    return TBloomError(
        f"the index {str(path)!r} can't be used: {why}; rebuild it from the segments with 'tbloom pages rebuild'"
    )


def flush(path: Path) -> None:
    """Waits until a file, or the names of a folder's files, are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def newest_of(root: Path) -> Path | None:
    """The file of the store's index; None where it has none."""
    matches = (INDEX_NAME.fullmatch(path.name) for path in root.glob("index-*.sqlite"))
    numbers = [int(match[1]) for match in matches if match]
    return root / f"index-{max(numbers)}.sqlite" if numbers else None


def remove_stale(root: Path) -> None:
    """Removes all indexes but the newest."""
    newest = newest_of(root)
    for path in sorted(root.glob("index-*")):  # a database before its log
        match = INDEX_NAME.fullmatch(path.name)
        if match and (newest is None or match[2] or f"index-{match[1]}.sqlite" != newest.name):
            path.unlink(missing_ok=True)


# Reentrant: a signal may fork.
_guard = threading.RLock()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
#: Those that a fork has locked.
_held: list[Database] = []


def _before_fork() -> None:
    """SQLite's connections and locks must not be in two processes."""
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
