"""Compares all records of a store with their digests, and with the index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index, Segment
from tbloom.pages.info import PagesReport
from tbloom.pages.recovery import Progress
from tbloom.pages.segments import Found, Gap

#: Records between two calls of ``progress``.
_STEP = 1_000


def verify(
    root: Path, index: Index, calendar: Calendar, progress: Progress | None = None
) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    problems: list[str] = []
    pages = records = done = 0
    with index.snapshot() as snapshot:
        known = snapshot.segments(calendar.since())
        total = sum(segment.size for segment in known)
        for label, group in groupby(known, attrgetter("label")):
            readings = [_Reading(root, segment, snapshot) for segment in group]
            for reading in readings:
                for count, end in enumerate(reading.records(), 1):
                    if progress is not None and not count % _STEP:
                        progress(done + end, total)
                done += reading.segment.size
                records += reading.read
                if progress is not None:
                    progress(done, total)
            if readings[0].segment.start < calendar.since():
                continue  # it has left since then, perhaps with its files
            problems += [problem for reading in readings for problem in reading.problems]
            has = sum(reading.segment.pages for reading in readings)
            found = sum(reading.pages for reading in readings)
            if has != found:
                problems.append(
                    f"slice {label}: the index has {has} pages, and {found} of them are where it says"
                )
            pages += has
    return PagesReport(pages, records, tuple(problems))


class _Reading:
    """What is found in a segment."""

    def __init__(self, root: Path, segment: Segment, snapshot: Index) -> None:
        self.segment, self._snapshot = segment, snapshot
        self._path = segments.path_of(root, segment.label, segment.number)
        self.problems: list[str] = []
        #: Records that were read, and pages that are where the index says.
        self.read = self.pages = 0

    def records(self) -> Iterator[int]:
        """Checks the records one by one; yields the offset behind each."""
        segment = self.segment
        try:
            with self._path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size < segment.size:
                    self._add(f"has {size} bytes, and the index knows of {segment.size}")
                for one in segments.records(self._path, 0, min(size, segment.size)):
                    self._check(one, file.fileno())
                    yield one.offset + one.length
        except FileNotFoundError:
            self._add("is missing")

    def _check(self, one: Found | Gap, fd: int) -> None:
        if isinstance(one, Gap):
            self._add(f"at {one.offset}, {one.length} bytes are no record")
            return
        try:
            record.check(os.pread(fd, one.length, one.offset))
        except members.Damaged as error:
            self._add(f"the record at {one.offset} is damaged: {error}")
        self.read += one.head.kind != "warcinfo"
        if one.head.kind == "response":
            place = self._snapshot.find(one.head.fingerprint)
            found = self.segment.number, one.offset, one.length, one.head.at
            self.pages += place is not None and place[2:] == found

    def _add(self, problem: str) -> None:
        self.problems.append(f"{self._path}: {problem}")
