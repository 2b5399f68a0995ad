"""What ``stats()`` and ``verify()`` return."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path

from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index, Segment
from tbloom.window import Slice, Window, from_ms


@dataclass(frozen=True, slots=True)
class PagesSlice:
    """One slice of a store; in a store without slices, all of it."""

    label: str
    #: The period, ``end`` excluded, and the time when its pages leave; None without slices.
    start: datetime | None
    end: datetime | None
    expires: datetime | None
    #: The number of pages, without those that were replaced or deleted.
    pages: int
    #: Records in the files: all pages, also replaced or deleted ones, and deletions (two each).
    records: int
    #: The number of WARC files, and their bytes.
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PagesReport:
    """The findings of ``verify()``."""

    #: Pages in the index.
    pages: int
    #: Records that were read: all pages, also replaced or deleted ones, and deletions.
    records: int
    #: A sentence for each problem, with the file and the offset.
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PagesInfo:
    """A page store."""

    path: str
    granularity: str | None
    tz: str | None
    #: The live slices, oldest first.
    slices: tuple[PagesSlice, ...]
    #: The size of the index on the disk.
    index_bytes: int

    @property
    def pages(self) -> int:
        """The number of pages, without those that were replaced or deleted."""
        return sum(slice.pages for slice in self.slices)

    @property
    def records(self) -> int:
        """The number of records in the segments."""
        return sum(slice.records for slice in self.slices)

    @property
    def segments(self) -> int:
        """The number of WARC files."""
        return sum(slice.segments for slice in self.slices)

    @property
    def bytes(self) -> int:
        """The size of segments and index."""
        return sum(slice.bytes for slice in self.slices) + self.index_bytes


def stats(root: Path, index: Index, calendar: Calendar) -> PagesInfo:
    """The numbers of a store."""
    window, slices = calendar.config.window, []
    by_slice = [[*group] for _, group in groupby(index.segments(calendar.since()), _slice_of)]
    periods = _periods(window, [group[0].start for group in by_slice])
    for group, period in zip(by_slice, periods, strict=True):
        slices.append(
            PagesSlice(
                group[0].label,
                *period,
                pages=sum(segment.pages for segment in group),
                records=sum(segment.records for segment in group),
                segments=len(group),
                bytes=sum(segment.size for segment in group),
            )
        )
    granularity, tz = (window.granularity, window.tz) if window else (None, None)
    return PagesInfo(str(root), granularity, tz, tuple(slices), index.bytes)


def _slice_of(segment: Segment) -> tuple[int, str]:
    return segment.start, segment.label


def _periods(
    window: Window | None, starts: list[int]
) -> Iterator[tuple[datetime | None, datetime | None, datetime | None]]:
    """The start, the end and the expiry of each slice, whose starts come oldest first."""
    if window is None:
        yield from [(None, None, None)] * len(starts)
        return
    #: A slice, and those that follow until it leaves; most of them serve the next slice too.
    periods: deque[Slice] = deque()
    for start in starts:
        while periods and periods[0].start < start:
            periods.popleft()
        if not periods:
            periods.append(window.slice_at(start))
        while len(periods) < window.slices:
            periods.append(window.slice_at(periods[-1].end))
        begin, end, expires = (
            from_ms(ms, window.zone) for ms in (periods[0].start, periods[0].end, periods[-1].end)
        )
        yield begin, end, expires
