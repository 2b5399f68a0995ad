"""Gets pages: by their addresses, or all of a store."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from datetime import datetime

from tbloom.errors import TBloomError
from tbloom.items import Item
from tbloom.pages import members, record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index, Place
from tbloom.pages.page import Page, fingerprint_of, micros
from tbloom.pages.segments import Found, Segment

logger: logging.Logger = logging.getLogger(__name__)


def get_many(index: Index, config: PagesConfig, urls: list[Item]) -> list[Page | None]:
    """The pages with these URLs or keys; None where there is none. Raises TBloomError where one is damaged."""
    asked, since = [fingerprint_of(url) for url in urls], config.since()
    looked = {fingerprint: index.find(fingerprint, since) for fingerprint in dict.fromkeys(asked)}
    places = sorted((place, each) for each, place in looked.items() if place is not None)
    found = {each: _read(index, config, place, each) for place, each in places}
    return [found.get(fingerprint) for fingerprint in asked]


def _read(index: Index, config: PagesConfig, place: Place, fingerprint: bytes) -> Page | None:
    try:
        data = segments.read(f"{index.root}/{place.name}", place.offset, place.length)
        page = record.page_of(data)
    except FileNotFoundError:  # its slice has left the window just now, or somebody has removed it
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
        f"{str(index.root / place.name)!r} is damaged at {place.offset}, or the index is not that of this file: {why}; "
        "'tbloom pages verify' tells more, 'tbloom pages rebuild' makes the index anew"
    )


def addresses(index: Index, config: PagesConfig) -> Iterator[Item]:
    """The pages' addresses, slice by slice, in the order of the files; bodies are not read."""
    return (found.head.address for _, found in _current(index, config))


def pages(
    index: Index, config: PagesConfig, since: datetime | None, until: datetime | None
) -> Iterator[Page]:
    """The pages fetched within a time, slice by slice, in the order of the files."""
    begin, end = micros(since) if since else -math.inf, micros(until) if until else math.inf
    for segment, found in _current(index, config):
        if not begin <= found.head.at < end:
            continue
        try:
            data = segments.read(f"{index.root}/{segment.name}", found.offset, found.length)
            page = record.page_of(data)
        except (members.Damaged, FileNotFoundError):
            why = f"the record at {found.offset} is damaged, or missing"
            _warn(index, config, segment, why)
        else:
            yield page


def _current(index: Index, config: PagesConfig) -> Iterator[tuple[Segment, Found]]:
    """The records of the current pages, with their segments."""
    for segment, one in segments.walk(index.root, _parts(index, config)):
        if not isinstance(one, Found):
            _warn(index, config, segment, one.why)
        elif one.head.kind == "response":
            place = index.find(one.head.fingerprint, config.since())
            if place is not None and (place.segment, place.offset) == (segment.number, one.offset):
                yield segment, one


def _parts(index: Index, config: PagesConfig) -> Iterator[tuple[Segment, int, int]]:
    """The parts of segments with the current pages: where most records are old ones, by the index, which reads all of its
    rows for each such segment."""
    for segment in index.segments(config.since()):
        if segment.pages > segment.records / 2:
            yield segment, 0, segment.size
        else:
            yield from ((segment, *span) for span in index.spans(segment.number))


def _warn(index: Index, config: PagesConfig, segment: Segment, why: str) -> None:
    """Logs what can't be read, unless its slice has left by now."""
    if segment.start >= config.since() and segment.number in {
        each.number for each in index.segments()
    }:
        logger.warning("%s: %s", index.root / segment.name, why)
