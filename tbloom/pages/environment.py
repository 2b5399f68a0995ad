"""An LMDB environment, of which a process may open one only: those who use it share it.

Commits are not waited for (``sync=False``): they survive the death of a process, not that of the
machine, after which the index is made anew from the segments (``lock``, ``recovery``).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from tbloom.errors import TBloomError
from tbloom.pages import forks, snapshot
from tbloom.pages.snapshot import META, SEGMENTS, SLICES, Kept, State, Tables, Transaction
from tbloom.window import MAX_SLICES

#: Address space, not memory or disk: for some 4,000,000,000 pages.
_MAP_BYTES = 1 << 38
_MOST_READERS = 1024
#: A slice may be kept beside those that are live while the clock is set back, or one leaves.
MOST_TABLES = 3 * MAX_SLICES


class Environment:
    """An environment that this process has opened."""

    def __init__(self, folder: Path, parameters: str | None) -> None:
        """Opens it, or begins it with the parameters."""
        begins = parameters is not None
        # Of somebody else, or on a disk that is only read, it may be there to be read.
        readonly = not begins and not os.access(folder / "data.mdb", os.W_OK)
        self.env = lmdb.open(
            str(folder),
            map_size=_MAP_BYTES,
            max_dbs=MOST_TABLES + 3,
            max_readers=_MOST_READERS,
            sync=False,
            readahead=False,  # other pages are elsewhere
            max_spare_txns=0,  # a forked child would end it
            readonly=readonly,
            create=begins,
        )
        self.pid = os.getpid()
        self.users = 0
        self.is_stale = False
        self.tables: Tables = {}
        self._guard = threading.Lock()
        #: The version, and the slices of it, whose tables are open.
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
        """Whoever looks into a map beyond the end of its file is killed."""
        needed = (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        size = (folder / "data.mdb").stat().st_size
        if size < needed:
            raise TBloomError(
                f"the index {str(folder)!r} was cut to {size} bytes of {needed}; make it anew from the segments with "
                "'tbloom pages rebuild'"
            )

    def _open_tables(self, parameters: str | None) -> None:
        # Handles that are opened within a transaction that only reads would end with it.
        for name in (META, SLICES, SEGMENTS):
            self.tables[name] = self.env.open_db(name, create=parameters is not None)
        if parameters is not None:
            with self.env.begin(write=True) as txn:
                snapshot.begin(txn, self.tables, parameters)

    def look(
        self, txn: Transaction, known: tuple[int, list[Kept]]
    ) -> tuple[State, list[Kept] | None]:
        """What the transaction sees, if ``known`` was before it began; no slices: they have to be learned first."""
        state = snapshot.state_in(txn, self.tables)
        version, slices = known
        return state, slices if version == state.version else None

    def learn_slices(self) -> None:
        """Reads which slices there are now, and opens their tables."""
        with self._guard:
            with self.env.begin() as txn:
                state = snapshot.state_in(txn, self.tables)
                slices = snapshot.slices_in(txn, self.tables)
            del txn  # see ``forks``
            for number in {slice.table for slice in slices} - self.tables.keys():
                self.tables[number] = self.env.open_db(b"%d" % number, create=False)
            self.known = state.version, slices

    def open_table(self, number: int) -> None:
        """Opens a table; it may be new."""
        with self._guard:
            if number not in self.tables:
                self.tables[number] = self.env.open_db(b"%d" % number)


_opened: dict[tuple[int, int], Environment] = {}
# A store that is dropped is closed by the garbage collector, wherever that runs.
_guard = threading.RLock()
#: Of the parent, and never closed.
_kept: list[Environment] = []


def acquire(folder: Path, parameters: str | None) -> Environment:
    """The environment in a folder, or a new one with these parameters; whoever has it releases it."""
    with _guard, errors(folder):
        identity = identity_of(folder)
        environment = _opened.get(identity) if identity else None
        if environment is None:
            environment = Environment(folder, parameters)
            _opened[environment.identity] = environment
        environment.users += 1
        return environment


def release(environment: Environment, *, is_stale: bool = False) -> None:
    """Closes it, if nobody else here has it. A stale one, that has been replaced, closes with its last transaction."""
    with _guard:
        environment.users -= 1
        environment.is_stale |= is_stale
        if not environment.users and environment.pid == os.getpid():
            if not environment.is_stale:
                environment.env.close()
            _opened.pop(environment.identity, None)


def _after_fork() -> None:
    """What the parent has opened must not be used here, and may be opened anew once it is closed here.

    Where a transaction was copied, closing would end it in the parent.
    """
    global _guard  # noqa: PLW0603 - a thread that is gone may have held it
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
    """What tells the environment that is in a folder from another one that takes its place."""
    try:
        status = os.stat(f"{folder}/data.mdb")  # noqa: PTH116 - asked at every call, and Path takes four times as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def errors(folder: Path) -> Iterator[None]:
    """LMDB's errors as those of the system, or of tbloom; a fork waits meanwhile."""
    try:
        with forks.transaction():
            yield
    except lmdb.MapFullError as error:
        raise TBloomError(f"the index {str(folder)!r} is full at {_MAP_BYTES >> 30} GB") from error
    except lmdb.Error as error:
        if error.code > 0:  # the system's; of a full disk, LMDB may say that a write was short, EIO
            raise OSError(error.code, os.strerror(error.code), str(folder)) from error
        raise TBloomError(
            f"the index {str(folder)!r} can't be used: {error}; "
            "make it anew from the segments with 'tbloom pages rebuild'"
        ) from error
