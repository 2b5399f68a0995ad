"""Compares all records of a store with their digests, and with the index."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from tbloom.pages import record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.info import PagesReport
from tbloom.pages.recovery import Progress
from tbloom.pages.segments import Found, Gap
from tbloom.pages.snapshot import Segment, Snapshot


def verify(
    root: Path, index: Index, calendar: Calendar, progress: Progress | None = None
) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    problems: list[str] = []
    pages = 0
    with index.reading() as snapshot:
        kept = snapshot.kept(calendar.since())[::-1]
        known = {slice: snapshot.segments_of(slice) for slice in kept}
        total = sum(segment.size for ours in known.values() for segment in ours)
        checker = _Checker(root, snapshot, progress, total)
        for slice, ours in known.items():
            before = checker.pages
            found = [problem for segment in ours for problem in checker.problems_of(segment)]
            if slice.start < calendar.since():  # it has left since then, perhaps with its files
                continue
            problems += found
            pages += (has := snapshot.pages(slice))
            if has != (where := checker.pages - before):
                problems.append(
                    f"slice {slice.label}: the index has {has} pages, and {where} of them are where it says"
                )
    return PagesReport(pages, checker.records, tuple(problems))


class _Checker:
    """Counts pages and records, and finds problems."""

    def __init__(
        self, root: Path, snapshot: Snapshot, progress: Progress | None, total: int
    ) -> None:
        self._root, self._snapshot = root, snapshot
        self._progress, self._done, self._total = progress, 0, total
        self.pages = self.records = 0

    def problems_of(self, segment: Segment) -> Iterator[str]:
        """The problems of a segment."""
        path = segments.path_of(self._root, segment.label, segment.number)
        try:
            size = path.stat().st_size
            if size < segment.size:
                yield f"{path}: has {size} bytes, and the index knows of {segment.size}"
            for found in segments.scan(path, 0, min(size, segment.size)):
                yield from self._problems_at(path, segment, found)
                if self._progress is not None:
                    self._progress(self._done + found.offset + found.length, self._total)
        except FileNotFoundError:
            yield f"{path}: is missing"
        self._done += segment.size

    def _problems_at(self, path: Path, segment: Segment, found: Found | Gap) -> Iterator[str]:
        if isinstance(found, Gap):
            yield f"{path}: at {found.offset}, {found.length} bytes are no record"
            return
        self.records += found.head.kind != "warcinfo"
        try:
            _check(segments.read(path, found.offset, found.length))
        except record.Damaged as error:
            yield f"{path}: the record at {found.offset} is damaged: {error}"
        if found.head.kind == "response":
            where = self._snapshot.find(found.head.fingerprint)
            place = segment.number, found.offset, found.length
            self.pages += where is not None and where[1][:3] == place


def _check(data: bytes) -> None:
    """Raises Damaged where a record's bytes have changed."""
    block = record.block_of(data)
    try:
        problems = _problems_in(block)
    except Exception as error:  # noqa: BLE001 - warcio raises anything for bytes that are no WARC record
        raise record.Damaged(f"{type(error).__name__}: {error}") from None
    if problems:
        raise record.Damaged("; ".join(problems))


def _problems_in(block: bytes) -> list[str]:
    problems: list[str] = []
    for one in ArchiveIterator(BytesIO(block), check_digests=True):
        while one.raw_stream.read(1 << 20):
            pass
        if one.digest_checker.passed is not True:
            problems += one.digest_checker.problems or ["it has no digest"]
    return problems
