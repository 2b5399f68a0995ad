"""Reads a segment from a place on: for ``rebuild``, and for ``verify`` with a check of each record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tbloom.pages import members, record, segments
from tbloom.pages.rows import Row
from tbloom.pages.segments import Found, Gap

#: Records per batch.
_BATCH = 2_000
_DIGESTS = (b"warc-block-digest", b"warc-payload-digest")


class Part(NamedTuple):
    """A part of a segment."""

    path: Path
    number: int
    begin: int
    end: int
    #: True: each record is compared with its digests.
    is_checked: bool = False


class Batch(NamedTuple):
    """Some records of a part, one after the other."""

    #: The offset behind them.
    end: int
    #: The offset behind the last record: less than ``end`` where a gap follows; 0 where there is none.
    size: int
    #: Pages and deletions.
    records: int
    #: Their rows (see ``rows``).
    rows: bytes
    #: The highest sequence number.
    sequence: int
    #: A sentence for each problem, with the file and the offset.
    problems: list[str]


def scan(part: Part) -> Iterator[Batch]:
    """The records of a part, and its problems."""
    found = segments.scan(part.path, part.begin, part.end)
    try:
        with part.path.open("rb", buffering=0) as file:
            while batch := [*islice(found, _BATCH)]:
                yield _summed(part, batch, file.fileno())
    except FileNotFoundError:
        yield Batch(part.end, 0, 0, b"", 0, [f"{part.path}: is missing"])


def _summed(part: Part, batch: list[Found | Gap], fd: int) -> Batch:
    size = records = sequence = 0
    rows, problems = [], []
    for each in batch:
        if isinstance(each, Gap):
            problems.append(f"{part.path}: at {each.offset}, {each.length} bytes are no record")
            continue
        size, head = each.offset + each.length, each.head
        if part.is_checked:
            try:
                check(os.pread(fd, each.length, each.offset))
            except members.Damaged as error:
                problems.append(f"{part.path}: the record at {each.offset} is damaged: {error}")
        if head.kind != "warcinfo":
            records += 1
            sequence = max(sequence, head.sequence)
            row = Row(
                head.fingerprint,
                part.number,
                each.offset,
                each.length,
                head.at,
                head.sequence,
                head.kind == "response",
            )
            rows.append(row.packed)
    return Batch(each.offset + each.length, size, records, b"".join(rows), sequence, problems)


def check(data: bytes) -> None:
    """Raises Damaged where a record's bytes have changed."""
    block = record.block_of(data)
    begin = block.find(b"\r\n\r\n") + 4
    version, *lines = block[:begin].rstrip().split(b"\r\n")
    fields = dict(_field(line) for line in lines)
    length = fields.get(b"content-length", b"")
    if not version.startswith(b"WARC/1.") or not length.isdigit():
        raise members.Damaged("it is no WARC record")
    end = begin + int(length)
    if len(block) != end + 4 or block[end:] != b"\r\n\r\n":
        raise members.Damaged("its lengths contradict each other")
    is_http = fields.get(b"content-type", b"").startswith(b"application/http")
    payload = block.find(b"\r\n\r\n", begin, end) + 4 if is_http else begin
    given = [fields.get(name) for name in _DIGESTS]
    if given == [None, None]:
        raise members.Damaged("it has no digest")
    for digest, start in zip(given, (begin, payload), strict=True):
        if digest is None:
            continue
        text = digest.decode(errors="replace")
        if not record.is_digest(text, memoryview(block)[start:end]):
            raise members.Damaged(f"its digest is not {text}")


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()
