"""The files of the pages: ``SLICE-NUMBER.warc.gz``, one record after the other.

A file only grows. Bytes behind the last record that the index knows were being written when the writer was killed:
the next writer looks through them when it opens the store (see ``recovery``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import record

#: Bytes of a record that are read to find its headers. Most need fewer.
_START = 4096
_LONG_START = 1 << 20
_STRIDE = 1 << 20
#: Numbers of segments have 32 bits, and the last one can't have a successor.
_MAX_NUMBER = (1 << 32) - 1
_NAME = re.compile(r"([0-9A-Za-z]+)-(\d{8,10})\.warc\.gz", re.ASCII)


class Found(NamedTuple):
    """A record in a segment."""

    offset: int
    length: int
    head: record.Head


class Gap(NamedTuple):
    """Bytes of a segment that are no record."""

    offset: int
    length: int


def name_of(label: str, number: int) -> str:
    """The name of a segment's file."""
    return f"{label}-{number:08}.warc.gz"


def path_of(root: Path, label: str, number: int) -> Path:
    """The path of a segment's file."""
    return root / name_of(label, number)


def stored(folder: Path) -> dict[int, str]:
    """The labels of the folder's segments by number, in order. Raises TBloomError where two have the same number."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir() if not path.is_dir())
    names = ((int(match[2]), match[1], match[0]) for match in matches if match)
    held = sorted(
        (number, label) for number, label, name in names if name == name_of(label, number)
    )
    for (number, label), (following, other) in pairwise(held):
        if number == following:
            raise TBloomError(
                f"{str(folder)!r} has {name_of(label, number)} and {name_of(other, number)}: one of them is a copy, "
                "or another store's; move it elsewhere"
            )
    return dict(one for one in held if one[0] < _MAX_NUMBER)


def read(path: Path, offset: int, length: int) -> bytes:
    """The bytes of a record; fewer where the file is cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):  # the next read is elsewhere
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def first_record(path: Path) -> bytes:
    """A segment's first record, or what is left of it."""
    return read(path, 0, min(record.length_of(read(path, 0, _START)), record.MAX_HEAD))


def segment_of(path: Path) -> str | None:
    """The ID of a segment; None where its first record is damaged."""
    try:
        return record.head_of(first_record(path)).segment
    except record.Damaged:
        return None


def scan(path: Path, begin: int, end: int) -> Iterator[Found | Gap]:
    """The records of a segment between two offsets, and the gaps between them; bodies are not read.

    Where the first record is damaged, the record that ends with the file gives the segment's ID: bytes in a page's
    body that only look like a record do not end there.
    """
    segment = segment_of(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if segment is None:
            size = os.fstat(fd).st_size
            for found in _all(fd, 0, size, None):
                if isinstance(found, Found) and found.offset + found.length == size:
                    segment = found.head.segment
        yield from _all(fd, begin, end, segment)
    finally:
        os.close(fd)


def _all(fd: int, begin: int, end: int, segment: str | None) -> Iterator[Found | Gap]:
    while begin < end:
        record_there = _record_at(fd, begin, end, segment)
        found = record_there or Gap(begin, _next_record(fd, begin + 1, end, segment) - begin)
        yield found
        begin += found.length


def _record_at(fd: int, offset: int, end: int, segment: str | None) -> Found | None:
    start = os.pread(fd, _START, offset)
    length = record.length_of(start)
    if not length or offset + length > end:
        return None
    tail = os.pread(fd, record.TAIL_BYTES, offset + length - record.TAIL_BYTES)
    if not record.is_whole(start, tail):
        return None
    for limit in (_START, _LONG_START, record.MAX_HEAD):  # a URL may be long
        if limit > _START:
            start = os.pread(fd, min(length, limit), offset)
        with suppress(record.Damaged):
            head = record.head_of(start[:length])
            return Found(offset, length, head) if segment in (None, head.segment) else None
        if limit >= length:
            break
    return None


def _next_record(fd: int, begin: int, end: int, segment: str | None) -> int:
    """The offset of the segment's next record; ``end`` where there is none."""
    while begin < end:
        data = os.pread(fd, min(_STRIDE, end - begin), begin)
        at = data.find(record.MAGIC)
        while at >= 0:
            if _record_at(fd, begin + at, end, segment):
                return begin + at
            at = data.find(record.MAGIC, at + 1)
        if len(data) < len(record.MAGIC):
            break
        begin += len(data) - len(record.MAGIC) + 1
    return end


def is_torn(path: Path) -> bool:
    """True: the segment ends within its first record."""
    size = path.stat().st_size
    start = read(path, 0, _START)
    if size < len(record.MAGIC):
        return record.MAGIC.startswith(start)
    return start.startswith(record.MAGIC) and not 0 < record.length_of(start) <= size


def flush(path: Path) -> None:
    """Waits until a file, or the names of a folder's files, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Appender:
    """A segment that is being written."""

    def __init__(self, path: Path, segment: str, *, is_new: bool = False) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self.path = path
        #: Its ID.
        self.segment = segment
        self._fd = os.open(path, flags, 0o666)
        self.size = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> int:
        """Writes a record at the end, whole or not at all, and returns its offset. Raises OSError."""
        offset = begin = self.size
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, offset)
                offset += written
                view = view[written:]
        except BaseException:
            self.cut(begin)
            raise
        self.size = offset
        return begin

    def cut(self, size: int) -> None:
        """Removes what was written behind ``size``."""
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):
            os.close(self._fd)
        self._fd = -1
