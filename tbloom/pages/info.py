"""``stats()`` and ``verify()``: counts, and problems of records, digests and index."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter

from tbloom.pages import members, record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index
from tbloom.pages.segments import Gap
from tbloom.window import from_ms

_COUNTED = ("pages", "records", "segments", "bytes")


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
    tz: str
    #: The live slices, oldest first.
    slices: tuple[PagesSlice, ...]
    #: The size of the index on the disk.
    index_bytes: int
    #: The totals of the slices; the bytes with those of the index.
    pages: int
    records: int
    segments: int
    bytes: int


def stats(index: Index, config: PagesConfig) -> PagesInfo:
    """The numbers of a store."""
    window, slices = config.window, []
    for start, group in groupby(index.segments(config.since()), attrgetter("start")):
        several, slice = [*group], window.slice_at(start)
        period = window.period(slice)
        slices.append(
            PagesSlice(
                *period,
                from_ms(window.expires(slice), window.zone) if period.end else None,
                pages=sum(segment.pages for segment in several),
                records=sum(segment.records for segment in several),
                segments=len(several),
                bytes=sum(segment.size for segment in several),
            )
        )
    totals = {name: sum(getattr(slice, name) for slice in slices) for name in _COUNTED}
    totals["bytes"] += index.bytes
    window_parts = window.granularity, window.tz
    return PagesInfo(str(index.root), *window_parts, tuple(slices), index.bytes, **totals)


def verify(index: Index, config: PagesConfig) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    records, found = Counter[int](), Counter[int]()
    problems = defaultdict[int, list[str]](list)
    with index.snapshot() as snapshot:
        known = snapshot.segments(config.since())
        parts = [(segment, 0, segment.size) for segment in known]
        for segment, one in segments.walk(index.root, parts):
            number, path = segment.number, index.root / segment.name
            if isinstance(one, Gap):
                problems[number].append(f"{path}: {one.why}")
                continue
            try:
                record.check(segments.read(path, one.offset, one.length))
            except (members.Damaged, FileNotFoundError) as error:
                problems[number].append(f"{path}: the record at {one.offset} is damaged: {error}")
            records[number] += one.head.kind != "warcinfo"
            if one.head.kind == "response":
                place = snapshot.find(one.head.fingerprint)
                here = number, one.offset, one.length, one.head.at
                found[number] += place is not None and place[2:] == here
    # Others have left since then, perhaps with their files.
    kept = [segment for segment in known if segment.start >= config.since()]
    for number, name, pages in ((one.number, one.name, one.pages) for one in kept):
        if found[number] != pages:
            problems[number].append(
                f"{index.root / name}: the index has {pages} pages, and {found[number]} of them are where it says"
            )
    return PagesReport(
        sum(segment.pages for segment in kept),
        sum(records[segment.number] for segment in kept),
        tuple(chain.from_iterable(problems[segment.number] for segment in kept)),
    )
