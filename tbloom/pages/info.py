"""``stats()`` and ``verify()``: counts, and problems of records, digests and index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter

from tbloom.pages import members, record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index
from tbloom.pages.segments import Found, Gap, Segment, label_of
from tbloom.window import Window, from_ms


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


def stats(index: Index, config: PagesConfig) -> PagesInfo:
    """The numbers of a store."""
    window = config.window
    slices = []
    for start, group in groupby(index.segments(config.since()), attrgetter("start")):
        several = [*group]
        slices.append(
            PagesSlice(
                label_of(several[0].name),
                *_period(window, start),
                pages=sum(segment.pages for segment in several),
                records=sum(segment.records for segment in several),
                segments=len(several),
                bytes=sum(segment.size for segment in several),
            )
        )
    granularity, tz = (window.granularity, window.tz) if window else (None, None)
    return PagesInfo(str(index.root), granularity, tz, tuple(slices), index.bytes)


def _period(
    window: Window | None, start: int
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """The start, the end and the expiry of the slice that begins then (ms)."""
    if window is None:
        return None, None, None
    slice = window.slice_at(start)
    at, end, expires = (
        from_ms(ms, window.zone) for ms in (slice.start, slice.end, window.expires(slice))
    )
    return at, end, expires


def verify(index: Index, config: PagesConfig) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    pages = records = 0
    problems: list[str] = []
    with index.snapshot() as snapshot:
        known = snapshot.segments(config.since())
        parts = [(segment, 0, segment.size) for segment in known]
        walked = segments.walk(index.root, parts)
        for segment, several in groupby(walked, itemgetter(0)):
            wrong, read, found = _verify(snapshot, segment, several)
            # Else it has left since then, perhaps with its file.
            if segment.start >= config.since():
                pages, records = pages + segment.pages, records + read
                problems += wrong
                if found != segment.pages:
                    problems.append(
                        f"{index.root / segment.name}: the index has {segment.pages} pages, and {found} of them are where it says"
                    )
    return PagesReport(pages, records, tuple(problems))


def _verify(
    index: Index, segment: Segment, walked: Iterable[tuple[Segment, Found | Gap]]
) -> tuple[list[str], int, int]:
    """The problems of a segment, the number of its records, and of its pages that are where the index says."""
    problems: list[str] = []
    records = pages = 0
    path = index.root / segment.name
    for _, one in walked:
        if isinstance(one, Gap):
            problems.append(f"{path}: {one.why}")
            continue
        try:
            record.check(segments.read(path, one.offset, one.length))
        except (members.Damaged, FileNotFoundError) as error:
            problems.append(f"{path}: the record at {one.offset} is damaged: {error}")
        records += one.head.kind != "warcinfo"
        if one.head.kind == "response":
            place = index.find(one.head.fingerprint)
            here = segment.number, one.offset, one.length, one.head.at
            pages += place is not None and place[2:] == here
    return problems, records, pages
