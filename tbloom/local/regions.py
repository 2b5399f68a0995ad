"""Where regions of a file are, and disk space for them."""

from __future__ import annotations

import errno
import os

#: Regions begin at multiples of this.
GRID = 4096
_ZEROS = bytes(1 << 20)
#: Errors of a file system that can't reserve space.
_UNABLE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
#: Where a region begins, and its length.
Region = tuple[int, int]


def take(taken: list[Region], length: int) -> int:
    """Takes the first free region of this length; returns where it begins."""
    begin = 0
    for other, size in sorted(taken):
        if other - begin >= length:
            break
        begin = max(begin, end_of([(other, size)]))
    taken.append((begin, length))
    return begin


def end_of(taken: list[Region]) -> int:
    """Where the last region ends, on the grid: the length that the file needs."""
    return -(-max(begin + length for begin, length in taken) // GRID) * GRID


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
    zero(fd, os.fstat(fd).st_size, begin + size)


def zero(fd: int, begin: int, end: int) -> None:
    """Writes zeros."""
    while begin < end:
        begin += os.pwrite(fd, _ZEROS[: end - begin], begin)
