"""What ``stats()`` and ``verify()`` tell about a page store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PagesSlice:
    """One slice of a store; of one without slices, all of it."""

    label: str
    #: The period, ``end`` excluded, and when its pages leave; None without slices.
    start: datetime | None
    end: datetime | None
    expires: datetime | None
    #: Pages that can be got.
    pages: int
    #: Records: these pages, those that were replaced or deleted since, and deletions.
    records: int
    #: WARC files, and what they take.
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PagesReport:
    """What ``verify()`` has found."""

    #: Pages that the index has.
    pages: int
    #: Records that were looked at: pages, those that were replaced or deleted since, and deletions.
    records: int
    #: A sentence for each thing that is wrong, with the file and the place in it.
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PagesInfo:
    """A page store."""

    path: str
    granularity: str | None
    tz: str | None
    #: The slices that are kept, oldest first.
    slices: tuple[PagesSlice, ...]
    #: What the index takes on the disk.
    index_bytes: int

    @property
    def pages(self) -> int:
        """Pages that can be got."""
        return sum(slice.pages for slice in self.slices)

    @property
    def records(self) -> int:
        """Records in the segments."""
        return sum(slice.records for slice in self.slices)

    @property
    def segments(self) -> int:
        """WARC files."""
        return sum(slice.segments for slice in self.slices)

    @property
    def bytes(self) -> int:
        """What segments and index take."""
        return sum(slice.bytes for slice in self.slices) + self.index_bytes
