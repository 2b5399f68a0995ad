"""Gets pages: by their addresses, or all of a store."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path

from tbloom.errors import TBloomError
from tbloom.items import Item, encode
from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index, Place, Segment
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.pages.segments import Found, Gap

logger = logging.getLogger(__name__)


def get_many(root: Path, index: Index, calendar: Calendar, urls: list[Item]) -> list[Page | None]:
    """The pages with these URLs or keys; None where there is none. Raises TBloomError where one is damaged."""
    asked = [(fingerprint_of(url), encode(url)) for url in urls]
    found: dict[bytes, Page] = {}
    missing = _read(root, index, calendar, {fingerprint for fingerprint, _ in asked}, found)
    if missing:  # Their slice has left the window just now, or their file was removed by hand.
        again = _read(root, index, calendar, {fingerprint for _, fingerprint in missing}, found)
        if again:
            raise _damaged(root, again[0][0], "it is missing")
    pages = ((found.get(fingerprint), address) for fingerprint, address in asked)
    # It may be another page, with the same BLAKE2b.
    return [page if page and encode(page.address) == address else None for page, address in pages]


def _read(
    root: Path, index: Index, calendar: Calendar, fingerprints: set[bytes], found: dict[bytes, Page]
) -> list[tuple[Place, bytes]]:
    """Adds the pages to ``found``; returns the places whose file is missing."""
    since, missing = calendar.since(), []
    looked = ((index.find(fingerprint, since), fingerprint) for fingerprint in fingerprints)
    places = sorted((place, fingerprint) for place, fingerprint in looked if place is not None)
    for (label, number), group in groupby(places, lambda one: one[0][1:3]):
        several = [*group]
        extents = [(place.offset, place.length) for place, _ in several]
        try:
            records = segments.read_all(root, label, number, extents)
            for (place, fingerprint), data in zip(several, records, strict=True):
                found[fingerprint] = _page(root, place, fingerprint, data)
        except FileNotFoundError:
            missing += several
    return missing


def _page(root: Path, place: Place, fingerprint: bytes, data: bytes) -> Page:
    try:
        page = record.page_of(data)
    except members.Damaged as error:
        raise _damaged(root, place, str(error)) from None
    if fingerprint_of(page.address) != fingerprint:
        raise _damaged(root, place, "it has another page")
    return page


def _damaged(root: Path, place: Place, why: str) -> TBloomError:
    path = segments.path_of(root, place.label, place.segment)
    return TBloomError(
        f"{str(path)!r} is damaged at {place.offset}, or the index is not that of this file: {why}; "
        "'tbloom pages verify' tells more, 'tbloom pages rebuild' makes the index anew"
    )


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
    return segment.start >= calendar.since() and index.segment(segment.number) is not None


def _current(root: Path, index: Index, calendar: Calendar) -> Iterator[tuple[Segment, Path, Found]]:
    """The records of the current pages, with their segments and files."""
    for segment in index.segments(calendar.since()):
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
    place = index.find(found.head.fingerprint, calendar.since())
    return place is not None and (place.segment, place.offset) == (number, found.offset)
