"""One writer at a time: the file ``lock`` of a store, which the writer holds (``flock``), with its process ID."""

from __future__ import annotations

import os
from pathlib import Path

from tbloom.errors import ConfigError, StoreLocked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NAME = "lock"
#: Bytes of the file, always: the next process ID needs no room on a full disk.
_LENGTH = 128


class WriterLock:
    """The lock of a store, held by this object."""

    def __init__(self, root: Path) -> None:
        """Takes the lock. Raises StoreLocked."""
        if fcntl is None:
            raise ConfigError("path", str(root), "a system with file locks, which this one lacks")
        self._fd = os.open(root / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._pid = os.getpid()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._fd, b"%-*d" % (_LENGTH, self._pid), 0)
        except BlockingIOError:
            os.close(self._fd)
            raise StoreLocked(str(root), _writer(root)) from None
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Releases the lock."""
        if self._pid == os.getpid():  # in a forked child the lock is the parent's
            os.pwrite(self._fd, b" " * _LENGTH, 0)
            # A child that another thread has forked may still have the file open.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def _writer(root: Path) -> object:
    """The process ID in the file; None where it has none."""
    try:
        return int((root / _NAME).read_bytes())
    except ValueError:
        return None
