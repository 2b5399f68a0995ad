"""Segments that another program has compressed anew, with ``gunzip`` and ``gzip`` or ``warcio recompress``, for example."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import cast

from tbloom.pages import members, record, segments
from tbloom.pages.database import flush
from tbloom.pages.exchange.responses import Fields
from tbloom.pages.exchange.stream import Records
from tbloom.pages.segments import Found, Gap

logger: logging.Logger = logging.getLogger(__name__)


class _Part(RawIOBase):
    """A range of bytes of a file."""

    def __init__(self, fd: int, begin: int, length: int) -> None:
        self._fd, self._at, self._end = fd, begin, begin + length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._fd, min(len(buffer), self._end - self._at), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _part(file: RawIOBase, one: Found | Gap) -> BufferedReader:
    part = _Part(file.fileno(), one.offset, one.length)
    return BufferedReader(cast("RawIOBase", part))


def restore(path: Path) -> None:
    """Rewrite the segment as tbloom writes it, if another program has compressed it. Keep the old file aside."""
    if _is_ours(path):
        return
    new = path.with_suffix(".new")
    try:
        if count := _write(path, new):
            flush(new)
            aside = segments.new_aside(path)
            os.link(path, aside)
            new.replace(path)
            flush(path.parent)
            logger.warning(
                "%s: %d records were compressed by another program; they are compressed anew, and %s is the file as it was",
                path, count, aside,
            )  # fmt: skip
    finally:
        new.unlink(missing_ok=True)


def _write(path: Path, new: Path) -> int:
    """Write the segment into ``new``. Return how many records were compressed. Bytes that are no record stay as they are."""
    count = 0
    with path.open("rb", buffering=0) as file, new.open("wb") as target:
        for one in segments.records(path, 0, path.stat().st_size):
            had = count
            if isinstance(one, Gap):
                for data in _members(_part(file, one), path):
                    target.write(data)
                    count += 1
            if count == had:
                shutil.copyfileobj(_part(file, one), target)
    return count


def _is_ours(path: Path) -> bool:
    """Return True if members of tbloom, by their lengths, fill the file."""
    with path.open("rb", buffering=0) as file:
        at, end = 0, path.stat().st_size
        while at < end and (
            length := members.length_of(os.pread(file.fileno(), segments.START, at))
        ):
            at += length
    return at == end


def _members(part: BufferedReader, path: Path) -> Iterator[bytes]:
    """Yield the segment's records, compressed as tbloom does, in a part that another program has compressed."""
    codec = "zstd" if path.name.endswith(members.ZST) else "gzip"
    segment = segments.first_of(path).segment
    with suppress(members.Damaged):
        source = Records(part, record.MAX_HEAD)
        while True:
            try:
                if (head := source.head()) is None:
                    return
                block = source.block(Fields(head).length)
                source.end()
            except members.Damaged:
                source.find_next()
                continue
            data = members.member(codec, b"%b\r\n%b\r\n\r\n" % (head, block))
            with suppress(members.Damaged):
                if record.head_of(data).segment == segment:
                    yield data
