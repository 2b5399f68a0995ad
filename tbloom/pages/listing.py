"""All pages of a store."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tbloom.items import Item
from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.page import Page, micros
from tbloom.pages.segments import Found, Gap
from tbloom.pages.snapshot import Segment

logger = logging.getLogger(__name__)


def addresses(root: Path, index: Index, calendar: Calendar) -> Iterator[Item]:
    """The pages' addresses, slice by slice, in the order of the files; bodies are not read."""
    return (found.head.address for _, _, found in _current(root, index, calendar))


def pages(
    root: Path, index: Index, calendar: Calendar, since: datetime | None, until: datetime | None
) -> Iterator[Page]:
    """The pages fetched within a time, slice by slice, in the order of the files."""
    begin, end = micros(since) if since else -math.inf, micros(until) if until else math.inf
    for segment, path, found in _current(root, index, calendar):
        if not begin <= found.head.at < end:
            continue
        try:
            page = record.page_of(segments.read(path, found.offset, found.length))
        except (members.Damaged, FileNotFoundError):
            if _is_kept(index, calendar, segment):
                logger.warning("%s: the record at %d is damaged, or missing", path, found.offset)
        else:
            yield page


def _is_kept(index: Index, calendar: Calendar, segment: Segment) -> bool:
    """False: its slice has left by now."""
    with index.reading() as snapshot:
        labels = {slice.label for slice in snapshot.kept(calendar.since())}
        return segment.label in labels and snapshot.segment(segment.number) is not None


def _current(root: Path, index: Index, calendar: Calendar) -> Iterator[tuple[Segment, Path, Found]]:
    """The records of the current pages, with their segments and files."""
    with index.reading() as snapshot:
        starts = {slice.label: slice.start for slice in snapshot.kept(calendar.since())}
        known = [segment for segment in snapshot.segments() if segment.label in starts]
    for segment in sorted(known, key=lambda one: (starts[one.label], one.number)):
        path = segments.path_of(root, segment.label, segment.number)
        try:
            for found in segments.records(path, 0, segment.size):
                if isinstance(found, Gap):
                    logger.warning("%s: at %d, %d bytes are no record", path, *found)
                elif _is_current(index, calendar, segment.number, found):
                    yield segment, path, found
        except FileNotFoundError:
            if _is_kept(index, calendar, segment):
                logger.warning("%s: is missing", path)


def _is_current(index: Index, calendar: Calendar, number: int, found: Found) -> bool:
    if found.head.kind != "response":
        return False
    with index.reading() as snapshot:
        where = snapshot.find(found.head.fingerprint, calendar.since())
    return where is not None and where[1][:2] == (number, found.offset)
