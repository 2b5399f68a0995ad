"""What ``stats()`` and ``verify()`` return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.segments import label_of
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
    window = calendar.config.window
    slice_at = cache(window.slice_at) if window else None  # the same ones follow upon many
    slices = []
    for start, group in groupby(index.segments(calendar.since()), attrgetter("start")):
        several = [*group]
        slices.append(
            PagesSlice(
                label_of(several[0].name),
                *_period(window, slice_at, start),
                pages=sum(segment.pages for segment in several),
                records=sum(segment.records for segment in several),
                segments=len(several),
                bytes=sum(segment.size for segment in several),
            )
        )
    granularity, tz = (window.granularity, window.tz) if window else (None, None)
    return PagesInfo(str(root), granularity, tz, tuple(slices), index.bytes)


def _period(
    window: Window | None, slice_at: Callable[[int], Slice] | None, start: int
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """The start, the end and the expiry of the slice that begins then (ms)."""
    if window is None or slice_at is None:
        return None, None, None
    slice = last = slice_at(start)
    for _ in range(window.slices - 1):
        last = slice_at(last.end)
    return (
        from_ms(slice.start, window.zone),
        from_ms(slice.end, window.zone),
        from_ms(last.end, window.zone),
    )
