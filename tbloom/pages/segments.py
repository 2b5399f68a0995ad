"""The WARC files of a store, ``SLICE-NUMBER.warc.gz`` or ``.warc.zst``: one record after the other.

A file only grows. If it has bytes after the last record that the index knows, its writer was killed. The next writer reads
these when it opens the store (see ``opening``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, record
from tbloom.pages.database import flush

#: So many bytes of a record are read first to find its headers. Most need fewer.
START = 4096
#: So many bytes of a segment are read for its first record. Another program may have compressed it together with others.
_FIRST = 1 << 18
_STRIDE = 1 << 20
#: Numbers of segments are below this: they have 32 bits, and each needs a successor.
_MAX_NUMBER = (1 << 32) - 1
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


def name_of(label: str, number: int, suffix: str) -> str:
    """Return the name of a segment's file."""
    return f"{label}-{number:08}{suffix}"


@lru_cache
def is_name(name: object, number: int) -> bool:
    """Return True if this is the name of a file of the segment with this number."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return match is not None and match[0] == name_of(match[1], number, match[3])


def files_in(folder: Path) -> dict[int, Path]:
    """Return the folder's segments by number, in order."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir() if not path.is_dir())
    numbered = [(int(match[2]), match[0]) for match in matches if match]
    found = sorted((number, name) for number, name in numbered if is_name(name, number))
    return {number: folder / name for number, name in found if number < _MAX_NUMBER}


def size_error(path: Path, size: int, known: int) -> TBloomError:
    """Return the error for a segment whose size is not the one that the index knows."""
    return TBloomError(
        f"{str(path)!r} has {size} bytes, but the index expects {known}: put the file back, or run "
        "'tbloom pages rebuild' to make a new index from what is there"
    )


def asides(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files that keep what was cut off these segments, or a segment as it was before it was rewritten."""
    stems = {name.partition(".")[0] for name in names}
    return sorted(one for one in folder.glob("*.aside-*") if one.name.partition(".")[0] in stems)


def new_aside(path: Path) -> Path:
    """Return the path for another such file."""
    numbers = [int(aside.suffix.partition("-")[2]) for aside in asides(path.parent, [path.name])]
    return path.with_name(f"{path.name.partition('.')[0]}.aside-{max(numbers, default=0) + 1}")


def cut(path: Path, size: int) -> Path:
    """Move the bytes after this size into a file aside, and return its path."""
    aside = new_aside(path)
    with path.open("rb") as file, aside.open("xb") as target:
        file.seek(size)
        shutil.copyfileobj(file, target)
    flush(aside)
    flush(path.parent)
    os.truncate(path, size)
    return aside


def read(path: str | Path, offset: int, length: int) -> bytes:
    """Return the bytes of a record; fewer if the file is cut."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def first_of(path: Path) -> record.First:
    """Return the fields of a segment's first record."""
    return record.first_of(read(path, 0, _FIRST))


def walk(
    root: Path, parts: Iterable[tuple[Segment, int, int]]
) -> Iterator[tuple[Segment, Found | Gap]]:
    """Yield the records between two offsets of each segment, and the gaps between them."""
    for segment, begin, end in parts:
        path = root / segment.name
        try:
            size = path.stat().st_size
            if size < end:
                why = f"has {size} bytes, and the index knows of {end}"
                yield segment, Gap(size, end - size, why)
            for one in records(path, begin, min(size, end)):
                yield segment, one
        except FileNotFoundError:
            yield segment, Gap(begin, end - begin, "is missing")


def records(path: Path, begin: int, end: int) -> Iterator[Found | Gap]:
    """Yield the records between two offsets of a segment, and the gaps between them. Bodies are not read."""
    segment = first_of(path).segment
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        while begin < end:
            found: Found | Gap | None = _record_at(fd, begin, end, segment)
            if found is None:
                length = _next_record(fd, begin + 1, end, segment) - begin
                found = Gap(begin, length, f"at {begin}, {length} bytes are no record")
            yield found
            begin += found.length


def _record_at(fd: int, offset: int, end: int, segment: str | None) -> Found | None:
    start = os.pread(fd, START, offset)
    length = members.length_of(start)
    if not length or offset + length > end:
        return None
    for limit in (START, record.MAX_HEAD):  # a URL may be long
        if limit > START:
            start = os.pread(fd, min(length, limit), offset)
        with suppress(members.Damaged):
            head = record.head_of(start[:length])
            is_ours = segment in (None, head.segment) and _has_length(fd, offset, length, end)
            return Found(offset, length, head) if is_ours else None
    return None


def _has_length(fd: int, offset: int, length: int, end: int) -> bool:
    """Return True if the record has this length. A wrong one would hide the next record."""
    following = offset + length
    if following == end or members.begins_member(os.pread(fd, members.MAGIC_BYTES, following)):
        return True
    with suppress(members.Damaged):
        record.block_of(os.pread(fd, length, offset))
        return True
    return False


def _next_record(fd: int, begin: int, end: int, segment: str | None) -> int:
    """Return the offset of the segment's next record; ``end`` if there is none."""
    while begin < end:
        data = os.pread(fd, min(_STRIDE, end - begin), begin)
        for match in members.MAGIC.finditer(data):
            if _record_at(fd, begin + match.start(), end, segment):
                return begin + match.start()
        if len(data) < members.MAGIC_BYTES:
            break
        begin += len(data) - members.MAGIC_BYTES + 1
    return end
