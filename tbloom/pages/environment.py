"""An LMDB environment. A process may open it only once, so its users share it.

Commits are not waited for (``sync=False``): they survive the death of a process, but not of the
machine; then the index is made anew from the segments (``lock``, ``recovery``).
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import lmdb

from tbloom.errors import TBloomError
from tbloom.pages import forks, snapshot, unregistered
from tbloom.pages.snapshot import META, SEGMENTS, SLICES, Kept, State, Tables, Transaction
from tbloom.window import MAX_SLICES

#: Address space, not memory or disk; enough for 4,000,000,000 pages.
MAP_BYTES = 1 << 38
_MAX_READERS = 1024
#: 64 a reader, and 192 of LMDB's own.
_LOCK_BYTES = 64 * (_MAX_READERS + 2)
#: Slices may be kept besides the live ones: while one leaves, or after the clock was set back.
MAX_TABLES = 3 * MAX_SLICES


class Environment:
    """An environment, open in this process."""

    def __init__(self, folder: Path, parameters: str | None) -> None:
        """Opens the environment of a folder; with ``parameters``, begins it."""
        begins = parameters is not None
        # It may be another user's, or on a read-only disk.
        registers = begins or not unregistered.is_needed(folder)
        readonly = not registers or not (begins or os.access(folder / "data.mdb", os.W_OK))
        if begins:  # LMDB leaves holes, and where the disk is full, writing into one by its map ends the process
            (folder / "lock.mdb").write_bytes(bytes(_LOCK_BYTES))
        self.env = lmdb.open(
            str(folder),
            map_size=MAP_BYTES,
            max_dbs=MAX_TABLES + 3,
            max_readers=_MAX_READERS,
            sync=False,
            readahead=False,  # the next look is elsewhere
            max_spare_txns=0,  # a forked child would end a spare one
            readonly=readonly,
            create=begins,
            lock=registers,
        )
        held = None if registers else unregistered.Reader(folder, self.env)
        #: Begins a read transaction.
        self.begin: Callable[[], AbstractContextManager[Transaction]] = (held or self.env).begin
        #: Within it, tables can be opened.
        self._held: Callable[[], AbstractContextManager[object]] = (
            held.hold if held else nullcontext
        )
        self.pid = os.getpid()
        self.users = 0
        self.is_stale = False
        self.tables: Tables = {}
        self._guard = threading.Lock()
        #: A version, and its slices, whose tables are open.
        self.known: tuple[int, list[Kept]] = (0, [])
        try:
            self._check_size(folder)
            self._open_tables(parameters)
            identity = identity_of(folder)
            if identity is None:  # another index has taken its place just now
                raise FileNotFoundError(  # noqa: TRY301
                    errno.ENOENT, os.strerror(errno.ENOENT), str(folder)
                )
            self.identity = identity
        except BaseException:
            self.env.close()
            raise

    def _check_size(self, folder: Path) -> None:
        """Raises TBloomError for a cut file: the system kills a process that reads mapped bytes beyond its end."""
        needed = (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        size = (folder / "data.mdb").stat().st_size
        if size < needed:
            raise TBloomError(
                f"the index {str(folder)!r} was cut to {size} bytes of {needed}; make it anew from the segments with "
                "'tbloom pages rebuild'"
            )

    def _open_tables(self, parameters: str | None) -> None:
        # A handle that is opened within a read transaction would end with it.
        with self._held():
            for name in (META, SLICES, SEGMENTS):
                self.tables[name] = self.env.open_db(name, create=parameters is not None)
        if parameters is not None:
            with self.env.begin(write=True) as txn:
                snapshot.begin(txn, self.tables, parameters)

    def look(
        self, txn: Transaction, known: tuple[int, list[Kept]]
    ) -> tuple[State, list[Kept] | None]:
        """The state and the slices that the transaction sees; no slices where ``known`` is older: learn them first."""
        state = snapshot.state_in(txn, self.tables)
        version, slices = known
        return state, slices if version == state.version else None

    def learn_slices(self) -> None:
        """Reads the slices, and opens their tables."""
        with self._guard:
            with self.begin() as txn:
                state = snapshot.state_in(txn, self.tables)
                slices = snapshot.slices_in(txn, self.tables)
            del txn  # see ``forks``
            with self._held():
                for number in {slice.table for slice in slices} - self.tables.keys():
                    self.tables[number] = self.env.open_db(b"%d" % number, create=False)
            self.known = state.version, slices

    def open_table(self, number: int) -> None:
        """Opens a table; makes it where it is new."""
        with self._guard:
            if number not in self.tables:
                self.tables[number] = self.env.open_db(b"%d" % number)


_opened: dict[tuple[int, int], Environment] = {}
# Reentrant: the garbage collector may close a store within.
_guard = threading.RLock()
#: The parent's, which are never closed here.
_kept: list[Environment] = []


def acquire(folder: Path, parameters: str | None) -> Environment:
    """The environment of a folder, or a new one with these parameters; ``release`` it after use."""
    with errors(folder), _guard:  # a fork that waits for this thread may close an environment
        identity = identity_of(folder)
        environment = _opened.get(identity) if identity else None
        if environment is None:
            environment = Environment(folder, parameters)
            _opened[environment.identity] = environment
            weakref.finalize(environment, _close, environment.env, os.getpid()).atexit = False
        environment.users += 1
        return environment


def release(environment: Environment, *, is_stale: bool = False) -> None:
    """Closes the environment after its last user. A stale (replaced) one closes with its last transaction."""
    with _guard:
        environment.users -= 1
        environment.is_stale |= is_stale
        if not environment.users and environment.pid == os.getpid():
            if not environment.is_stale:
                environment.env.close()
            _opened.pop(environment.identity, None)


def _close(env: lmdb.Environment, pid: int) -> None:
    """Closes a stale one when nothing uses it any more.

    While none is opened: lmdb takes a new file for one that it is closing, if the system gave it the same inode.
    """
    if pid == os.getpid():
        with _guard:
            env.close()


def _after_fork() -> None:
    """Closes the parent's environments here, so that they can be opened anew; except where a transaction was copied:
    closing would end it in the parent."""
    global _guard  # noqa: PLW0603 - a thread that is gone may have held the old one
    _guard = threading.RLock()
    for environment in _opened.values():
        if forks.is_quiet:
            environment.env.close()
        else:
            _kept.append(environment)
    _opened.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def identity_of(folder: Path) -> tuple[int, int] | None:
    """The identity of a folder's environment: another one that takes its place has another."""
    try:
        status = os.stat(f"{folder}/data.mdb")  # noqa: PTH116 - called by every verb, and Path takes four times as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def errors(folder: Path) -> Iterator[None]:
    """Raises LMDB's errors as the system's, or as TBloomError; a fork waits until the block ends."""
    try:
        with forks.transaction():
            yield
    except lmdb.MapFullError as error:
        raise TBloomError(f"the index {str(folder)!r} is full at {MAP_BYTES >> 30} GB") from error
    except (lmdb.Error, snapshot.Corrupted) as error:
        # The system's (a full disk may come as EIO).
        if isinstance(error, lmdb.Error) and error.code > 0:
            raise OSError(error.code, os.strerror(error.code), str(folder)) from error
        raise TBloomError(
            f"the index {str(folder)!r} can't be used: {error}; "
            "make it anew from the segments with 'tbloom pages rebuild'"
        ) from error
