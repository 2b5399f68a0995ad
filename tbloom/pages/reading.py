"""Reads a store: pages by address, all pages, ``stats()`` and ``verify()``."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter

from tbloom.arguments import Item
from tbloom.errors import TBloomError
from tbloom.pages import members, record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index, Place
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.pages.segments import Found, Gap, Segment
from tbloom.window import from_ms

logger: logging.Logger = logging.getLogger(__name__)
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
    #: Records in the files: all pages, also replaced or deleted ones, and deletions (two each).
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
    read = {each: _read(index, config, place, each) for place, each in places}
    return [read.get(fingerprint) for fingerprint in wanted]


def _read(index: Index, config: PagesConfig, place: Place, fingerprint: bytes) -> Page | None:
    try:
        data = segments.read(f"{index.root}/{place.name}", place.offset, place.length)
        page = record.page_of(data)
    except FileNotFoundError:  # its slice has just left, or somebody has removed the file
        now = index.find(fingerprint, config.since())
        if now == place:
            raise _damaged(index, place, "it is missing") from None
        return None if now is None else _read(index, config, now, fingerprint)
    except members.Damaged as error:
        raise _damaged(index, place, str(error)) from None
    if fingerprint_of(page.address) != fingerprint:
        raise _damaged(index, place, "it has another page")
    return page


def _damaged(index: Index, place: Place, why: str) -> TBloomError:
    return TBloomError(
        f"{str(index.root / place.name)!r} is damaged at {place.offset}, or does not match the index: {why}; "
        "run 'tbloom pages verify' for details, 'tbloom pages rebuild' for a new index"
    )


def pages(
    index: Index, config: PagesConfig, since: datetime | None, until: datetime | None
) -> Iterator[Page]:
    """Return the pages that were fetched within a time, slice by slice, in the order of the files."""
    times = micros(since) if since else -math.inf, micros(until) if until else math.inf
    return (page for _, _, page in located_pages(index, config, *times))


def located_pages(
    index: Index, config: PagesConfig, begin: float = -math.inf, end: float = math.inf
) -> Iterator[tuple[Segment, Found, Page]]:
    """Yield the pages that were fetched within a time (microseconds since the epoch), each with its segment and record."""
    for segment, found in current_records(index, config):
        if not begin <= found.head.at < end:
            continue
        try:
            data = segments.read(f"{index.root}/{segment.name}", found.offset, found.length)
            page = record.page_of(data)
        except (members.Damaged, FileNotFoundError):
            why = f"the record at {found.offset} is damaged, or missing"
            _warn(index, config, segment, why)
        else:
            yield segment, found, page


def current_records(index: Index, config: PagesConfig) -> Iterator[tuple[Segment, Found]]:
    """Yield the segment and the record of each current page, slice by slice, in the order of the files. Bodies are not read."""
    for segment, one in segments.walk(index.root, _parts(index, config)):
        if not isinstance(one, Found):
            _warn(index, config, segment, one.why)
        elif one.head.kind == "response":
            place = index.find(one.head.fingerprint, config.since())
            if place is not None and (place.segment, place.offset) == (segment.number, one.offset):
                yield segment, one


def _parts(index: Index, config: PagesConfig) -> Iterator[tuple[Segment, int, int]]:
    """Yield the parts of the segments that hold the current pages.

    That is the whole segment if most of its records are current. Else the index says where they are, for which it reads all
    of its rows."""
    for segment in index.segments(config.since()):
        if segment.pages > segment.records / 2:
            yield segment, 0, segment.size
        else:
            yield from ((segment, *span) for span in index.spans(segment.number))


def _warn(index: Index, config: PagesConfig, segment: Segment, why: str) -> None:
    """Log what can't be read, unless its slice has left meanwhile."""
    if segment.start >= config.since() and segment.number in {
        each.number for each in index.segments()
    }:
        logger.warning("%s: %s", index.root / segment.name, why)


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
                record.block_of(segments.read(path, one.offset, one.length))
            except (members.Damaged, FileNotFoundError) as error:
                problems[number].append(f"{path}: the record at {one.offset} is damaged: {error}")
            records[number] += one.head.kind != "warcinfo"
            if one.head.kind == "response":
                place = snapshot.find(one.head.fingerprint)
                here = number, one.offset, one.length, one.head.at
                found[number] += place is not None and place[2:] == here
    # The other slices have left meanwhile, perhaps with their files.
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
