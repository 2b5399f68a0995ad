"""Gets pages: by their addresses, or all of a store."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.items import Item, encode
from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.index import Index
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.pages.segments import Found, Gap
from tbloom.pages.snapshot import Segment

logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """A page's record. Places sort as they are read fastest."""

    label: str
    segment: int
    offset: int
    length: int
    fingerprint: bytes


def get_many(root: Path, index: Index, calendar: Calendar, urls: list[Item]) -> list[Page | None]:
    """The pages with these URLs or keys; None where there is none. Raises TBloomError where one is damaged."""
    asked = [(fingerprint_of(url), encode(url)) for url in urls]
    found: dict[bytes, Page] = {}
    missing = _read(root, index, calendar, {fingerprint for fingerprint, _ in asked}, found)
    if missing:  # Their slice has left the window just now, or their file was removed by hand.
        again = _read(root, index, calendar, {place.fingerprint for place in missing}, found)
        if again:
            raise _damaged(root, again[0], "it is missing")
    pages = ((found.get(fingerprint), address) for fingerprint, address in asked)
    # It may be another page, with the same BLAKE2b.
    return [page if page and encode(page.address) == address else None for page, address in pages]


def _read(
    root: Path, index: Index, calendar: Calendar, fingerprints: set[bytes], found: dict[bytes, Page]
) -> list[_Place]:
    """Adds the pages to ``found``; returns the places whose file is missing."""
    missing: list[_Place] = []
    for (label, number), group in groupby(
        _places(index, calendar, fingerprints), lambda place: place[:2]
    ):
        places = [*group]
        extents = [(place.offset, place.length) for place in places]
        try:
            records = segments.read_all(root, label, number, extents)
            for place, data in zip(places, records, strict=True):
                found[place.fingerprint] = _page(root, place, data)
        except FileNotFoundError:
            missing += places
    return missing


def _places(index: Index, calendar: Calendar, fingerprints: set[bytes]) -> list[_Place]:
    places = []
    with index.reading() as snapshot:
        since = calendar.since()
        for fingerprint in fingerprints:
            where = snapshot.find(fingerprint, since)
            if where is not None:
                slice, entry = where
                places.append(_Place(slice.label, *entry[:3], fingerprint))
    return sorted(places)


def _page(root: Path, place: _Place, data: bytes) -> Page:
    try:
        page = record.page_of(data)
    except members.Damaged as error:
        raise _damaged(root, place, str(error)) from None
    if fingerprint_of(page.address) != place.fingerprint:
        raise _damaged(root, place, "it has another page")
    return page


def _damaged(root: Path, place: _Place, why: str) -> TBloomError:
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
