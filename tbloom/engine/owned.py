"""Files that this process keeps open to write them, while other parts of it may close descriptors that they do not know.

A daemon does so at its start: the number then belongs to the next file that is opened, which would get our bytes.
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path

from tbloom.errors import TBloomError


class OwnFile:
    """An open file with its descriptor ``fd``.

    It is known by the descriptor's place, which is ours alone, because we read and write at others. fstat() takes ten times as
    long.
    """

    __slots__ = ("_place", "_where", "fd", "path")

    def __init__(self, fd: int, path: str | Path) -> None:
        self.fd: int = fd
        self.path: str | Path = path
        self._place = os.lseek(fd, (1 << 30) + secrets.randbelow(1 << 30), os.SEEK_SET)
        self._where = partial(os.lseek, fd, 0, os.SEEK_CUR)

    @property
    def is_ours(self) -> bool:
        """False: the descriptor was closed, or is another file's by now."""
        try:
            return self._where() == self._place
        except OSError:
            return False

    def check(self) -> None:
        """Raise TBloomError unless the descriptor is ours."""
        if not self.is_ours:
            raise TBloomError(
                f"the descriptor of {str(self.path)!r} was closed or reused by this process, as by a daemon that closes all at its "
                "start: make the object after that"
            )

    def write(self, place: int, data: bytes) -> None:
        """Write bytes at a place."""
        self.check()
        left = memoryview(data)
        while left:
            left = left[os.pwrite(self.fd, left, place + len(data) - len(left)) :]

    def close(self) -> None:
        """Close the file, if the descriptor is ours."""
        if self.is_ours:
            os.close(self.fd)


def leave_open(connection: object) -> None:
    """Keep a connection to a database from being closed, also at the end of the process.

    SQLite would then write its log into the database, by descriptors that are not this process' or not its own any more.
    """
    import ctypes  # noqa: PLC0415 - some builds of Python lack it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
