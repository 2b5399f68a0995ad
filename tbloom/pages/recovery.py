"""Brings the index up to the segments: after a writer was killed, or from nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig
from tbloom.pages.database import remove_stale
from tbloom.pages.index import Index, Place, Segment
from tbloom.pages.rows import Row, Rows
from tbloom.pages.segments import Found, Gap

logger = logging.getLogger(__name__)

#: Called with the bytes that are done, and their total.
Progress = Callable[[int, int], object]
#: Records that are sorted at once, and addresses per change of an index that is made anew.
_BATCH = 20_000
#: The part of a rebuild's time that reading takes.
_SCANNING = 0.9


class Moved(NamedTuple):
    """A page that was put again, in an earlier slice."""

    #: The later slice, where it was before.
    label: str
    fingerprint: bytes
    #: Sequence number of the put; the deletion's is one lower.
    sequence: int


def parameters_in_segments(root: Path) -> str | None:
    """The parameters in the newest segment that has them; None where none has."""
    for path in reversed(segments.stored(root).values()):
        details = _details(path)
        if isinstance(details.get("parameters"), str):
            return str(details["parameters"])
    return None


def rebuild(root: Path, config: PagesConfig, progress: Progress | None = None) -> None:
    """Makes the index anew from the segments, and puts it in the place of the old one."""
    try:
        with closing(Index.begin(root, config.stored)) as index:
            stored = segments.stored(root).items()
            begun = [_begin(config, number, path) for number, path in stored]
            with Rows(root, root / "index-1.sqlite.rows") as rows:
                learner = _Learner(root, index, rows, filter(None, begun))
                learner.scan(progress)
                learner.fill(progress)
            index.publish()
    finally:
        remove_stale(root)  # or this one, where it was not finished: it may have filled the disk


def reconcile(root: Path, index: Index, calendar: Calendar) -> list[Moved]:
    """Adds to the index what the last writer had written when it was killed, and cuts off a torn record.

    Returns the pages that moved to an earlier slice: the deletion in their later slice may be missing. Raises
    TBloomError where a segment is shorter than the index knows, unless its slice has left the window.
    """
    known = {segment.number: segment for segment in index.segments()}
    files = segments.stored(root)
    grown: list[Segment] = []
    for segment in known.values():
        path = segments.path_of(root, segment.label, segment.number)
        size = path.stat().st_size if files.get(segment.number) == path else 0
        if size < segment.size and segment.start >= calendar.since():
            raise TBloomError(
                f"{str(path)!r} has {size} bytes, and the index knows of {segment.size}: put the file back, or make "
                "the index anew from what is there with 'tbloom pages rebuild'"
            )
        if size > segment.size:
            grown.append(segment)
    for number, path in files.items():
        if number not in known and (begun := _begin(calendar.config, number, path)):
            grown.append(begun)
    if not grown:
        return []
    with Rows(root, None) as rows:
        learner = _Learner(root, index, rows, grown)
        learner.scan()
        return learner.merge()


def _begin(config: PagesConfig, number: int, path: Path) -> Segment | None:
    """A segment that the index does not know; None: it has no records of tbloom."""
    label = segments.label_of(path)
    start = _start_of(path, label, config)
    if start is not None:
        return Segment(number, label, start)
    if segments.is_torn(path) and not _has_records(path):
        logger.warning("%s is removed: its first record is torn", path)
        path.unlink()
    else:
        logger.warning("%s is left out: tbloom did not write it", path)
    return None


class _Learner:
    """Adds records of segments to an index: of each address the newest one, if it is a page.

    A power cut may have torn it: then an older one that is whole, unless the page was deleted in between.
    """

    def __init__(self, root: Path, index: Index, rows: Rows, known: Iterable[Segment]) -> None:
        """``known``: what the index knows of the segments that have more."""
        self._root, self._index, self._rows = root, index, rows
        self._segments = {segment.number: segment for segment in known}

    def scan(self, progress: Progress | None = None) -> None:
        """Reads the records that the index does not know, and cuts off torn ones."""
        ends = {one.number: self._path(one).stat().st_size for one in self._segments.values()}
        done, total = 0, sum(ends.values())
        for number, end in ends.items():
            known = self._segments[number]
            path, begin = self._path(known), known.size
            found = segments.records(path, begin, end)
            while batch := [*islice(found, _BATCH)]:
                self._add(number, path, batch)
                last = batch[-1].offset + batch[-1].length
                if progress is not None:
                    progress(int((done + last) * _SCANNING), total)
            done += end
            size = self._segments[number].size
            # A segment whose first record is damaged gets no more records: nothing to cut.
            if size < end and segments.segment_of(path) is not None:
                logger.warning("%s: they are cut off", path)
                os.truncate(path, size)

    def fill(self, progress: Progress | None) -> None:
        """Fills an empty index, in the order of addresses."""
        with self._index.changing():
            self._note()
        found = self._rows.by_address()
        while batch := [*islice(found, _BATCH)]:
            several = [rows for rows in batch if len(rows) > 1]
            for rows in sorted(several, key=lambda rows: rows[0][2:4]):  # as a disk reads faster
                rows[:] = [self._newest(rows)]
            with self._index.changing():
                for [row] in batch:
                    if row.is_page:
                        self._index.put(row.fingerprint, self._place(row), None)
        if progress is not None:
            total = sum(segment.size for segment in self._segments.values())
            progress(total, total)

    def merge(self) -> list[Moved]:
        """Adds the records to an index with others, all at once; returns the pages that moved to an earlier slice."""
        moved: list[Moved] = []
        with self._index.changing():
            self._note()
            for rows in self._rows.by_address():
                fingerprint = rows[0].fingerprint
                had = self._index.find(fingerprint)
                if had is not None:
                    self._index.remove(fingerprint, had)
                    rows.append(Row(fingerprint, 0, *had[2:], is_page=True))
                    self._segments.setdefault(
                        had.segment, Segment(had.segment, had.label, had.start)
                    )
                row = self._newest(rows)
                if row.is_page:
                    self._index.put(fingerprint, self._place(row), None)
                    moved += self._moved(row, rows)
        return moved

    def _add(self, number: int, path: Path, batch: list[Found | Gap]) -> None:
        known, rows = self._segments[number], []
        for one in batch:
            if isinstance(one, Gap):
                logger.warning("%s: at %d, %d bytes are no record", path, one.offset, one.length)
                continue
            known = known._replace(size=one.offset + one.length)
            if one.head.kind != "warcinfo":
                rows.append(Row.of(number, one))
        sequence = max([known.sequence, *(row.sequence for row in rows)])
        self._segments[number] = known._replace(
            records=known.records + len(rows), sequence=sequence
        )
        self._rows.add(rows)

    def _place(self, row: Row) -> Place:
        segment = self._segments[row.segment]
        return Place(segment.start, segment.label, *row[2:6])

    def _moved(self, row: Row, rows: list[Row]) -> Iterator[Moved]:
        """Later slices that do not know that the page has left them; ``rows`` come newest first."""
        last: dict[str, Row] = {}
        for one in rows:
            if one.sequence < row.sequence:
                last.setdefault(self._segments[one.segment].label, one)
        start = self._segments[row.segment].start
        return (
            Moved(label, row.fingerprint, row.sequence)
            for label, one in last.items()
            if one.is_page and self._segments[one.segment].start > start
        )

    def _note(self) -> None:
        for segment in self._segments.values():
            self._index.put_segment(segment)

    def _newest(self, rows: list[Row]) -> Row:
        """The one that counts; ``rows`` come newest first."""
        if len(rows) == 1:
            return rows[0]
        pages = takewhile(attrgetter("is_page"), rows)
        return next(filter(self._is_whole, pages), rows[0])

    def _is_whole(self, row: Row) -> bool:
        path = self._path(self._segments[row.segment])
        try:
            members.check(segments.read(path, row.offset, row.length))
        except (members.Damaged, FileNotFoundError) as error:
            logger.warning("%s: the record at %d: %s", path, row.offset, error)
            return False
        return True

    def _path(self, segment: Segment) -> Path:
        return segments.path_of(self._root, segment.label, segment.number)


def _has_records(path: Path) -> bool:
    return any(isinstance(one, Found) for one in segments.records(path, 0, path.stat().st_size))


def _start_of(path: Path, label: str, config: PagesConfig) -> int | None:
    """The start of a segment's slice (ms); None: tbloom did not write the segment."""
    start = _details(path).get("start")
    if isinstance(start, int):
        return start
    # Its first record is damaged. The time of a page tells the slice.
    for found in segments.records(path, 0, path.stat().st_size):
        if isinstance(found, Found) and found.head.kind == "response":
            slice = config.slice_at(found.head.at // 1000)
            return slice.start if slice.label == label else None
    return None


def _details(path: Path) -> dict[str, object]:
    """The details in a segment's first record; empty where it can't be read."""
    try:
        found = json.loads(record.details_of(segments.first_record(path)))
    except (members.Damaged, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
