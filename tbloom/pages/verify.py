"""Compares all records of a store with their digests, and with the index."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.info import PagesReport
from tbloom.pages.segments import Gap, Progress, Segment


def verify(
    root: Path, index: Index, calendar: Calendar, progress: Progress | None = None
) -> PagesReport:
    """The numbers of pages and records, and the problems."""
    with index.snapshot() as snapshot:
        known = snapshot.segments(calendar.since())
        #: By slice: problems, records that were read, and pages that are where the index says.
        problems: dict[int, list[str]] = {segment.start: [] for segment in known}
        read: Counter[int] = Counter()
        found: Counter[int] = Counter()
        parts = [(segment, 0, segment.size) for segment in known]
        for segment, one in segments.walk(root, parts, progress):
            path, start = root / segment.name, segment.start
            if isinstance(one, Gap):
                problems[start].append(f"{path}: {one.why}")
                continue
            try:
                record.check(segments.read(path, one.offset, one.length))
            except (members.Damaged, FileNotFoundError) as error:
                why = f"the record at {one.offset} is damaged: {error}"
                problems[start].append(f"{path}: {why}")
            read[start] += one.head.kind != "warcinfo"
            if one.head.kind == "response":
                place = snapshot.find(one.head.fingerprint)
                here = segment.number, one.offset, one.length, one.head.at
                found[start] += place is not None and place[2:] == here
    has = _pages(known)
    for start in [start for start in has if start < calendar.since()]:
        del (
            has[start],
            problems[start],
            read[start],
        )  # it has left since then, perhaps with its files
    for start, pages in has.items():
        if pages != found[start]:
            label = next(segments.label_of(one.name) for one in known if one.start == start)
            problems[start].append(
                f"slice {label}: the index has {pages} pages, and {found[start]} of them are where it says"
            )
    every = tuple(problem for several in problems.values() for problem in several)
    return PagesReport(sum(has.values()), sum(read.values()), every)


def _pages(known: list[Segment]) -> Counter[int]:
    """The pages of each slice."""
    pages: Counter[int] = Counter()
    for segment in known:
        pages[segment.start] += segment.pages
    return pages
