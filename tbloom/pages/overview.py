"""All pages of a store, and its numbers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tbloom.items import Item
from tbloom.pages import record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.info import PagesInfo, PagesSlice
from tbloom.pages.page import Page
from tbloom.pages.segments import Found, Gap
from tbloom.pages.snapshot import Kept, Segment
from tbloom.window import Slice as Period
from tbloom.window import Window, from_ms

logger = logging.getLogger(__name__)


def addresses(root: Path, index: Index, calendar: Calendar) -> Iterator[Item]:
    """The pages' addresses, slice by slice, as they stand in the files; bodies are not read."""
    return (found.head.address for _, _, found in _current(root, index, calendar))


def pages(root: Path, index: Index, calendar: Calendar) -> Iterator[Page]:
    """The pages, slice by slice, as they stand in the files."""
    for segment, path, found in _current(root, index, calendar):
        page = _page_at(path, found)
        if page is not None:
            yield page
        elif _is_kept(index, calendar, segment):
            logger.warning(
                "%s: the record at %d is damaged, or the file missing", path, found.offset
            )


def stats(root: Path, index: Index, calendar: Calendar) -> PagesInfo:
    """What there is."""
    slices = []
    with index.reading() as snapshot:
        by_label: dict[str, list[Segment]] = {}
        for segment in snapshot.segments():
            by_label.setdefault(segment.label, []).append(segment)
        kept = snapshot.kept(calendar.since())[::-1]
        for slice, period in zip(kept, _periods(calendar.config.window, kept), strict=True):
            ours = by_label.get(slice.label, [])
            slices.append(
                PagesSlice(
                    slice.label,
                    *period,
                    pages=snapshot.pages(slice),
                    records=sum(segment.records for segment in ours),
                    segments=len(ours),
                    bytes=sum(segment.size for segment in ours),
                )
            )
    window = calendar.config.window
    return PagesInfo(
        str(root),
        window.granularity if window else None,
        window.tz if window else None,
        tuple(slices),
        index.bytes,
    )


def _is_kept(index: Index, calendar: Calendar, segment: Segment) -> bool:
    """Whether its slice has not left by now."""
    with index.reading() as snapshot:
        labels = {slice.label for slice in snapshot.kept(calendar.since())}
        return segment.label in labels and snapshot.segment(segment.number) is not None


def _current(root: Path, index: Index, calendar: Calendar) -> Iterator[tuple[Segment, Path, Found]]:
    """The records of the pages that there are, and where."""
    with index.reading() as snapshot:
        starts = {slice.label: slice.start for slice in snapshot.kept(calendar.since())}
        known = [segment for segment in snapshot.segments() if segment.label in starts]
    for segment in sorted(known, key=lambda one: (starts[one.label], one.number)):
        path = root / segments.name_of(segment.label, segment.number)
        try:
            for found in segments.scan(path, 0, segment.size):
                if isinstance(found, Gap):
                    logger.warning("%s: at %d, %d bytes are no record", path, *found)
                elif _is_current(index, calendar, segment.number, found):
                    yield segment, path, found
        except FileNotFoundError:
            if _is_kept(index, calendar, segment):
                logger.warning("%s: is missing", path)


def _page_at(path: Path, found: Found) -> Page | None:
    try:
        return record.page_of(segments.read(path, found.offset, found.length))
    except (record.Damaged, FileNotFoundError):
        return None


def _is_current(index: Index, calendar: Calendar, number: int, found: Found) -> bool:
    if found.head.kind != "response":
        return False
    with index.reading() as snapshot:
        where = snapshot.find(found.head.fingerprint, calendar.since())
    return where is not None and where[1][:2] == (number, found.offset)


def _periods(
    window: Window | None, slices: list[Kept]
) -> Iterator[tuple[datetime | None, datetime | None, datetime | None]]:
    """When each slice begins, ends and leaves; they come oldest first."""
    if window is None:
        yield from [(None, None, None)] * len(slices)
        return
    #: A slice, and those that come until it leaves: mostly those of the one before, and another one.
    periods: deque[Period] = deque()
    for slice in slices:
        while periods and periods[0].start < slice.start:
            periods.popleft()
        if not periods:
            periods.append(window.slice_at(slice.start))
        while len(periods) < window.slices:
            periods.append(window.slice_at(periods[-1].end))
        start, end, expires = (
            from_ms(ms, window.zone) for ms in (periods[0].start, periods[0].end, periods[-1].end)
        )
        yield start, end, expires
