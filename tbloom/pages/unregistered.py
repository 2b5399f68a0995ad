"""Readers that may not write to ``lock.mdb``, where LMDB registers readers: other users, read-only mounts.

Such a reader puts a lock, for which a file need not be writable, on a byte of ``data.mdb`` whose offset is the number of
the transaction that it reads. The system removes the lock with the reader. Before each change the writer looks for
locks, and where there are some it keeps what they stand for, with read transactions of its own.

Nothing is overwritten while it is read: change W takes only pages that were replaced before R, where R is the oldest
registered reader's transaction, or W-1. So R-1 and all later ones stay whole. A lock on T counts if T is the newest
transaction once the lock is there. Change T+1 may not have seen the lock, but R is T or earlier; each later change sees
it, and R is T+1 or earlier, by the writer's own reader.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from tbloom.errors import TBloomError
from tbloom.pages import forks
from tbloom.pages.snapshot import Transaction

if TYPE_CHECKING:
    from lmdb import Environment

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Linux's ``struct flock``: type, whence, start, length, process.
_LOCK = Struct("hhqqi4x")
#: How long a writer waits for readers that no writer has known (s).
_MAX_WAIT = 10.0


def _is_able() -> bool:
    if sys.platform != "linux" or not hasattr(fcntl, "F_OFD_GETLK"):
        return False
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:  # an emulated kernel
        return False
    finally:
        os.close(fd)
    return True


#: Whether the system has locks that belong to an open file, not to a process: threads need their own.
IS_ABLE = _is_able()


def is_needed(folder: Path) -> bool:
    """True: this process may not write to the ``lock.mdb`` of an index, nor create it."""
    file = folder / "lock.mdb"
    if os.access(file if os.path.lexists(file) else folder, os.R_OK | os.W_OK):
        return False
    if not IS_ABLE:
        why = "on this system readers need the permission to write to it"
        raise PermissionError(errno.EACCES, why, str(file))
    return True


class Reader:
    """Reads an index without a registration."""

    def __init__(self, folder: Path, env: Environment) -> None:
        self._data, self._env = str(folder / "data.mdb"), env

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A read transaction."""
        while True:
            with self.hold() as number, self._env.begin() as txn:
                # Beside a change, LMDB's choice of the newest one may fail.
                if number == txn.id() == _newest(self._env):
                    yield txn
                    return

    @contextmanager
    def hold(self) -> Iterator[int]:
        """The newest transaction's number; the transaction and later ones stay whole within the block."""
        while True:
            number = _newest(self._env)
            with _locked(self._data, number):
                if number == _newest(self._env):
                    yield number
                    return


def _newest(env: Environment) -> int:
    """The number of the newest transaction that has been committed."""
    return int(env.info()["last_txnid"])


@contextmanager
def _locked(path: str, number: int) -> Iterator[None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # another index has taken its place: nobody changes it any more
        yield
        return
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, number, 1, 0))
        yield
    finally:
        os.close(fd)


class Keeper:
    """Keeps what unregistered readers read, for a writer."""

    def __init__(self, folder: Path, env: Environment) -> None:
        self._folder, self._env = folder, env
        self._fd = os.open(folder / "data.mdb", os.O_RDONLY | os.O_CLOEXEC)
        #: What is kept, at most twice: the second one takes over when all readers of the first are gone.
        self._kept: list[Transaction] = []
        #: False: there may be readers for whom nobody has kept anything.
        self._knows = False
        forks.before(self._before_fork)

    def before_change(self) -> None:
        """Call it before each change. Raises TBloomError where a reader from before this writer does not end."""
        if not self._is_read():
            self._knows = True
            self._drop()
            return
        newest = _newest(self._env)
        if not self._knows:
            self._wait(newest - 1)
        if not self._is_read(newest):
            self._drop()
            return
        if len(self._kept) > 1 and not self._is_read(self._kept[1].id()):
            self._kept.pop(0).abort()
        if len(self._kept) < 2:  # noqa: PLR2004 - see above
            self._kept.append(self._env.begin())

    def close(self) -> None:
        """Keeps nothing any more."""
        self._drop()
        os.close(self._fd)

    def abandon(self) -> None:
        """Closes its file in a forked child; what is kept is the parent's."""
        os.close(self._fd)

    def _drop(self) -> None:
        while self._kept:
            self._kept.pop().abort()

    def _is_read(self, end: int = 0) -> bool:
        """Whether there is a lock on a transaction before ``end``; 0: on any."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, end, 0)
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked)
        return bool(_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def _wait(self, end: int) -> None:
        deadline = time.monotonic() + _MAX_WAIT
        while end > 0 and self._is_read(end):
            if time.monotonic() > deadline:
                raise TBloomError(
                    f"{str(self._folder)!r} has been read since before it was opened here, by a process without write "
                    "permission: wait until that has ended (verify() takes long), or end it"
                )
            time.sleep(0.01)
        self._knows = True

    def _before_fork(self) -> None:
        """Keeps nothing: a child's copy of a transaction would end it."""
        if self._kept:
            self._drop()
            self._knows = False
