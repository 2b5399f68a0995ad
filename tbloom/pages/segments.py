"""The WARC files of a store, ``SLICE-NUMBER.warc.gz`` or ``.warc.zst``: one record after the other. A file only grows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, record
from tbloom.pages.members import Damaged, Torn

_STRIDE = 1 << 20
_NAME = re.compile(r"([0-9A-Za-z]+)-(\d{8,10})(\.warc\.(?:gz|zst))", re.ASCII)


class Segment(NamedTuple):
    """What the index knows of a segment."""

    number: int
    #: The name of its file, and the start of its slice (ms).
    name: str
    start: int
    #: The size of its file.
    size: int = 0
    #: Its records: pages, replaced or deleted ones included, and deletions.
    records: int = 0
    #: The sequence number of its last record. All later puts and deletions have higher ones.
    sequence: int = 0
    #: The number of its current pages. The index counts them itself: ``Index.put_segment`` ignores this.
    pages: int = 0


class Found(NamedTuple):
    """A record in a segment."""

    offset: int
    length: int
    head: record.Head


class Gap(NamedTuple):
    """A range of bytes in a segment where no record can be read."""

    offset: int
    length: int
    why: str
    #: True: a record begins there, and the file ends before the record does.
    is_torn: bool


def name_of(label: str, number: int, suffix: str) -> str:
    """Return the name of a segment's file."""
    return f"{label}-{number:08}{suffix}"


def files_in(folder: Path) -> dict[int, Path]:
    """Return the folder's segments by number, in order."""
    found = dict[int, Path]()
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.name == name_of(match[1], int(match[2]), match[3]) and path.is_file():
            found[int(match[2])] = path
    return {number: found[number] for number in sorted(found)}


def size_error(path: Path, size: int, known: int) -> TBloomError:
    """Return the error for a segment whose size is not the one that the index knows."""
    return TBloomError(
        f"{str(path)!r} has {size} bytes, but the index expects {known}: put the file back, or run "
        "'tbloom pages rebuild' to make a new index from what is there"
    )


def content(path: str | Path, offset: int, length: int) -> bytes:
    """Return the decompressed record between these offsets. Raise Damaged if it can't be read."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return members.content_at(fd, offset, offset + length, record.MAX_BLOCK)[0]
    finally:
        os.close(fd)


def start(path: str | Path, offset: int, length: int) -> bytes:
    """Return the same up to the end of its fields, at least."""
    fd = os.open(path, os.O_RDONLY)
    try:
        begin = members.start_at(fd, offset)
    finally:
        os.close(fd)
    return begin if record.END in begin else content(path, offset, length)


def first_of(path: Path) -> record.First:
    """Return the fields of a segment's first record, as far as they can be read."""
    try:
        return record.first_of(start(path, 0, path.stat().st_size))
    except Damaged:
        return record.First()


def walk(path: Path, begin: int, end: int) -> Iterator[Found | Gap]:
    """Yield the records between two offsets of a segment, and the gaps between them.

    The file is opened for each record: a caller may walk through more segments at a time than files may be open.
    """
    identity = first_of(path).segment
    while begin < end:
        one = _at(path, begin, end, identity)
        if isinstance(one, Found):
            identity = identity or one.head.segment
        yield one
        begin += one.length


def _at(path: Path, begin: int, end: int, identity: str | None) -> Found | Gap:
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        try:
            return _record_at(fd, begin, end, identity)
        except Damaged as error:
            following = _next_record(fd, begin + 1, end, identity)
            is_torn = following == end and isinstance(error, Torn)
            why = f"at {begin}, {following - begin} bytes are no record: {error}"
            return Gap(begin, following - begin, why, is_torn)


def _record_at(fd: int, offset: int, end: int, identity: str | None) -> Found:
    """Return the record at this offset. Raise Damaged if there is none, or it is of another segment: a page's body may hold it."""
    found, at = members.content_at(fd, offset, end, record.MAX_BLOCK)
    head = record.head_of(found)
    if len(found) != head.size:
        raise Damaged("it is not compressed record by record, as 'warcio recompress' does")
    if identity not in (None, head.segment):
        raise Damaged("it belongs to another segment")
    return Found(offset, at - offset, head)


def _next_record(fd: int, begin: int, end: int, identity: str | None) -> int:
    """Return the offset of the segment's next record; ``end`` if there is none."""
    while begin < end:
        data = os.pread(fd, min(_STRIDE, end - begin), begin)
        for match in members.MAGIC.finditer(data):
            try:
                _record_at(fd, begin + match.start(), end, identity)
            except Damaged:
                continue
            return begin + match.start()
        begin += max(1, len(data) - 3)
    return end
