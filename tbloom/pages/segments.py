"""The files of the pages: ``SLICE-NUMBER.warc.gz``, or ``.warc.zst``, one record after the other.

A file only grows. Bytes behind the last record that the index knows were being written when the writer was killed:
the next writer looks through them when it opens the store (see ``recovery``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, record

#: Bytes of a record that are read to find its headers. Most need fewer.
_START = 4096
_LONG_START = 1 << 20
_STRIDE = 1 << 20
#: Numbers of segments have 32 bits, and the last one can't have a successor.
_MAX_NUMBER = (1 << 32) - 1
_NAME = re.compile(r"([0-9A-Za-z]+)-(\d{8,10})(\.warc\.(?:gz|zst))", re.ASCII)


class Found(NamedTuple):
    """A record in a segment."""

    offset: int
    length: int
    head: record.Head


class Gap(NamedTuple):
    """Bytes of a segment that are no record."""

    offset: int
    length: int


def name_of(label: str, number: int, suffix: str) -> str:
    """The name of a segment's file."""
    return f"{label}-{number:08}{suffix}"


def label_of(path: Path) -> str:
    """The label in the name of a segment's file."""
    return path.name.partition("-")[0]


def path_of(root: Path, label: str, number: int) -> Path:
    """The path of a segment's file; that of a missing one ends with ``.warc.*``."""
    paths = (root / name_of(label, number, suffix) for suffix in (members.GZ, members.ZST))
    return next(filter(Path.exists, paths), root / name_of(label, number, ".warc.*"))


def stored(folder: Path) -> dict[int, Path]:
    """The folder's segments by number, in order. Raises TBloomError where two have the same number."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir() if not path.is_dir())
    held = sorted(
        (int(match[2]), match[0])
        for match in matches
        if match and match[0] == name_of(match[1], int(match[2]), match[3])
    )
    for (number, name), (following, other) in pairwise(held):
        if number == following:
            raise TBloomError(
                f"{str(folder)!r} has {name} and {other}: one of them is a copy, or another store's; move it elsewhere"
            )
    return {number: folder / name for number, name in held if number < _MAX_NUMBER}


def read(path: Path, offset: int, length: int) -> bytes:
    """The bytes of a record; fewer where the file is cut."""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), length, offset)


def read_all(
    root: Path, label: str, number: int, extents: Sequence[tuple[int, int]]
) -> Iterator[bytes]:
    """The bytes of a segment's records, given by offset and length; fewer where the file is cut."""
    start, flags = f"{root}/{name_of(label, number, '')}", os.O_RDONLY | os.O_CLOEXEC
    try:  # (A Path, or to ask first, would take a tenth of a get.)
        fd = os.open(start + members.GZ, flags)
    except FileNotFoundError:
        fd = os.open(start + members.ZST, flags)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # the next read is elsewhere
            for offset, length in extents[
                1:
            ]:  # one after the other, a disk takes two to three times as long
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)
        for offset, length in extents:
            yield os.pread(fd, length, offset)
    finally:
        os.close(fd)


def first_record(path: Path) -> bytes:
    """A segment's first record, or what is left of it."""
    return read(path, 0, min(members.length_of(read(path, 0, _START)), record.MAX_HEAD))


def segment_of(path: Path) -> str | None:
    """The ID of a segment; None where its first record is damaged."""
    try:
        return record.head_of(first_record(path)).segment
    except members.Damaged:
        return None


def records(path: Path, begin: int, end: int) -> Iterator[Found | Gap]:
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
    length = members.length_of(start)
    if not length or offset + length > end:
        return None
    tail = os.pread(fd, members.TAIL_BYTES, offset + length - members.TAIL_BYTES)
    if not members.is_whole(start, tail):
        return None
    for limit in (_START, _LONG_START, record.MAX_HEAD):  # a URL may be long
        if limit > _START:
            start = os.pread(fd, min(length, limit), offset)
        with suppress(members.Damaged):
            head = record.head_of(start[:length])
            return Found(offset, length, head) if segment in (None, head.segment) else None
        if limit >= length:
            break
    return None


def _next_record(fd: int, begin: int, end: int, segment: str | None) -> int:
    """The offset of the segment's next record; ``end`` where there is none."""
    while begin < end:
        data = os.pread(fd, min(_STRIDE, end - begin), begin)
        for match in members.MAGIC.finditer(data):
            if _record_at(fd, begin + match.start(), end, segment):
                return begin + match.start()
        if len(data) < members.MAGIC_BYTES:
            break
        begin += len(data) - members.MAGIC_BYTES + 1
    return end


def is_torn(path: Path) -> bool:
    """True: the segment ends within its first record."""
    start = read(path, 0, _START)
    return members.begins(start) and not 0 < members.length_of(start) <= path.stat().st_size


def flush(path: Path) -> None:
    """Waits until a file, or the names of a folder's files, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
