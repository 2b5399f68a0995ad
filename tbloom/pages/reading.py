"""Reads a store: pages by address, all pages, ``stats()`` and ``verify()``."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TypeVar

from tbloom.arguments import Item
from tbloom.errors import TBloomError
from tbloom.pages import record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index, Place, Row
from tbloom.pages.members import Damaged
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.pages.segments import Found, Gap, Segment
from tbloom.window import from_ms

logger: logging.Logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_SECOND = 1_000_000
_COUNTED = ("pages", "records", "segments", "bytes")


@dataclass(frozen=True, slots=True)
class PagesSlice:
    """One slice of a store. A store without a window has one, with all pages."""

    label: str
    #: The period, ``end`` excluded, and the time when its pages leave; None without a window.
    start: datetime | None
    end: datetime | None
    expires: datetime | None
    #: The number of pages, without those that were replaced or deleted.
    pages: int
    #: Records in the files: all pages, also replaced or deleted ones, and deletions.
    records: int
    #: The number of WARC files, and their bytes.
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PagesReport:
    """The result of ``verify()``."""

    #: Pages in the index.
    pages: int
    #: Records that were read: all pages, also replaced or deleted ones, and deletions.
    records: int
    #: A sentence for each problem, with the file and the offset.
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PagesInfo:
    """The numbers of a page store."""

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


def get_many(index: Index, config: PagesConfig, urls: list[Item]) -> list[Page | None]:
    """Return the pages with these URLs or keys; None for each that the store lacks. Raise TBloomError if one is damaged."""
    wanted, since = [fingerprint_of(url) for url in urls], config.since()
    found = {fingerprint: index.find(fingerprint, since) for fingerprint in dict.fromkeys(wanted)}
    places = sorted((place, each) for each, place in found.items() if place is not None)
    read = {each: _page(index, config, place, each) for place, each in places}
    return [read.get(fingerprint) for fingerprint in wanted]


def _page(index: Index, config: PagesConfig, place: Place, fingerprint: bytes) -> Page | None:
    try:
        path = f"{index.root}/{place.name}"
        page = _page_at(path, place.offset, place.length)
    except (Damaged, FileNotFoundError) as error:
        now = index.find(fingerprint, config.since())
        if now == place:
            raise _damaged(index, place, error) from None
        # Its slice has just left.
        return None if now is None else _page(index, config, now, fingerprint)
    if fingerprint_of(page.address) != fingerprint:
        raise _damaged(index, place, "it has another page")
    return page


def _page_at(path: str | Path, offset: int, length: int) -> Page:
    return record.page_of(segments.content(path, offset, length))


def _address_at(path: str, offset: int, length: int) -> str | bytes:
    return record.address_in(segments.start(path, offset, length))


def _damaged(index: Index, place: Place, why: object) -> TBloomError:
    return TBloomError(
        f"{str(index.root / place.name)!r} is damaged at {place.offset}, or does not match the index: {why}; "
        "run 'tbloom pages verify' for details, 'tbloom pages rebuild' for a new index"
    )


def pages(
    index: Index, config: PagesConfig, since: datetime | None, until: datetime | None
) -> Iterator[Page]:
    """Yield the pages that were fetched within a time, slice by slice, in the order of the files."""
    times = micros(since) if since else -math.inf, micros(until) if until else math.inf
    there = index.segments(config.since())  # now, not when the first page is asked for
    return _each(index, config, there, times, _page_at)


def addresses(index: Index, config: PagesConfig) -> Iterator[str | bytes]:
    """Yield the address of each page in the same order. Bodies are not read."""
    there, times = index.segments(config.since()), (-math.inf, math.inf)
    return _each(index, config, there, times, _address_at)


def _each(
    index: Index,
    config: PagesConfig,
    there: list[Segment],
    times: tuple[float, float],
    read: Callable[[str, int, int], _T],
) -> Iterator[_T]:
    """Yield what is read of each page. Warn of each that can't be read, unless it was replaced or has left meanwhile."""
    for name, fingerprint, row in _places(index, config, there):
        if not times[0] <= row.at < times[1]:
            continue
        path = f"{index.root}/{name}"
        try:
            found = read(path, row.offset, row.length)
        except (Damaged, FileNotFoundError):
            place = index.find(fingerprint, config.since())
            if place is not None and (place.name, place.offset) == (name, row.offset):
                logger.warning("%s: the record at %d is damaged, or missing", path, row.offset)
        else:
            yield found


def _places(
    index: Index, config: PagesConfig, there: list[Segment]
) -> Iterator[tuple[str, bytes, Row | Place]]:
    """Yield the file, the fingerprint and the place of each page that was in these segments as they were, once.

    Those that are replaced before they are reached come last.
    """
    replaced = dict[bytes, None]()
    sizes = {segment.number: segment.size for segment in there}
    for segment in there:
        found = array("Q")
        for row in index.rows(segment):
            found.append(row.offset)
            yield segment.name, row.fingerprint, row
        if len(found) < segment.pages:
            replaced |= _replaced(index, segment, sizes, {*found})
    for fingerprint in replaced:
        place = index.find(fingerprint, config.since())
        if place is not None:
            yield place.name, fingerprint, place


def _replaced(
    index: Index, segment: Segment, sizes: dict[int, int], found: set[int]
) -> dict[bytes, None]:
    """Return the pages of a segment that were replaced since a listing began, and that it has not yielded.

    ``sizes``: of all segments, when it began. ``found``: the offsets in this segment that it has yielded.
    """
    pages = dict[bytes, None]()
    with suppress(FileNotFoundError):  # its slice has left meanwhile
        for one in segments.walk(index.root / segment.name, 0, segment.size):
            if isinstance(one, Found):
                pages[one.head.fingerprint] = None
                if one.head.kind != "response" or one.offset in found:  # deleted, or found
                    del pages[one.head.fingerprint]
    places = {page: index.find(page) for page in pages}
    return {
        page: None
        for page, place in places.items()
        if place is not None and place.offset >= sizes.get(place.segment, 0)
    }


def fetched_in(index: Index, there: list[Segment], seconds: Collection[int]) -> Iterator[Page]:
    """Yield the pages that were fetched in these seconds, also those that were replaced, but none that was deleted."""
    deleted, replaced = dict[bytes, int](), list[tuple[Path, Found]]()
    for segment in there:
        path = index.root / segment.name
        for one in _all_in(index, segment):
            if isinstance(one, Row):
                if one.at // _SECOND in seconds:
                    yield from _read(path, one)
            elif one.head.kind == "metadata":
                last = deleted.get(one.head.fingerprint, 0)
                deleted[one.head.fingerprint] = max(last, one.head.sequence)
            elif one.head.kind == "response" and one.head.at // _SECOND in seconds:
                replaced.append((path, one))
    for path, one in replaced:
        if one.head.sequence > deleted.get(one.head.fingerprint, 0):
            yield from _read(path, one)


def _read(path: Path, one: Row | Found) -> Iterator[Page]:
    """Yield the page at this place, if it can be read."""
    with suppress(Damaged, FileNotFoundError):  # its slice may have left meanwhile
        yield _page_at(path, one.offset, one.length)


def _all_in(index: Index, segment: Segment) -> Iterator[Row | Found]:
    """Yield the current pages of a segment as the index has them, and the records between them, which it does not have."""
    path, at = index.root / segment.name, 0
    for row in chain(index.rows(segment), [Row(segment.size, 0, 0, b"")]):
        if row.offset > at:
            with suppress(FileNotFoundError):
                yield from (one for one in segments.walk(path, at, row.offset) if isinstance(one, Found))  # fmt: skip
        at = row.offset + row.length
        if row.length:
            yield row


def stats(index: Index, config: PagesConfig) -> PagesInfo:
    """Return the numbers of a store."""
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
    """Read all records. Return the numbers of pages and records, and the problems."""
    pages, records, problems = 0, 0, list[str]()
    for segment in index.segments(config.since()):
        read, wrong = _verify(index, segment)
        # Else the slice has left meanwhile, perhaps with its file.
        if segment.start >= config.since():
            pages += segment.pages
            records += read
            problems += [f"{index.root / segment.name}: {why}" for why in wrong]
    return PagesReport(pages, records, tuple(problems))


def _verify(index: Index, segment: Segment) -> tuple[int, list[str]]:
    """Return the number of records of a segment, and its problems."""
    path, wrong = index.root / segment.name, list[str]()
    size = path.stat().st_size if path.exists() else 0
    if size < segment.size:
        wrong.append(f"has {size} bytes, and the index knows of {segment.size}")
    pages = there = records = 0
    walk = segments.walk(path, 0, min(size, segment.size)) if size else iter(())
    for offset, group in groupby(
        merge(index.rows(segment), walk, key=itemgetter(0)), itemgetter(0)
    ):
        row: Row | None = None
        for one in group:
            if isinstance(one, Row):
                row, pages = one, pages + 1
            elif isinstance(one, Gap):
                wrong.append(one.why)
            else:
                head = one.head
                records += head.kind != "warcinfo"
                there += row == (offset, one.length, head.at, head.fingerprint)
    if pages != there:
        wrong.append(f"the index has {pages} pages, and {there} of them are where it says")
    return records, wrong
