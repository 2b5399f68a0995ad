"""The regions of a file, and disk space for more."""

from __future__ import annotations

import errno
import os

#: Regions begin at multiples of this.
GRID = 4096
ZEROS = bytes(1 << 20)
#: Errors of a file system that can't reserve space.
_UNABLE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Regions:
    """The regions of a file that are taken."""

    def __init__(self) -> None:
        self._taken = [(0, GRID)]

    @property
    def end(self) -> int:
        """Where the last one ends: the length that the file needs."""
        return max(end for _, end in self._taken)

    def take(self, begin: int, size: int) -> None:
        """Marks a region as taken."""
        self._taken.append((begin, begin + _on_grid(size)))

    def find(self, size: int) -> int:
        """Takes the first free region of this size; returns where it begins."""
        place = 0
        for begin, end in sorted(self._taken):
            if begin - place >= _on_grid(size):
                break
            place = max(place, end)
        self.take(place, size)
        return place


def reserve(fd: int, begin: int, size: int) -> None:
    """Reserves disk space for these bytes of a file; new ones are 0. Raises OSError where the disk is full.

    On a system without a call for it, new bytes are written, and holes before them stay.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, begin, size)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
        else:
            return
    end = begin + size
    place = os.fstat(fd).st_size
    while place < end:
        place += os.pwrite(fd, ZEROS[: end - place], place)


def _on_grid(size: int) -> int:
    return -(-size // GRID) * GRID
