"""Brings the index up to the segments: after a writer was killed, or from nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, record, scanning, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index, remove_stale
from tbloom.pages.rows import PARTS, Row, Rows
from tbloom.pages.scanning import Part, Progress
from tbloom.pages.segments import Found
from tbloom.pages.snapshot import Change, Kept, Segment

logger = logging.getLogger(__name__)

#: Addresses per change of an index that is made anew.
_BATCH = 20_000
#: The part of a rebuild's time that reading takes.
_SCANNING = 0.8
_sequence_of = attrgetter("sequence")


def _place_of(rows: list[Row]) -> tuple[int, int]:
    """Where the newest one is."""
    newest = max(rows, key=_sequence_of)
    return newest.segment, newest.offset


def parameters_in_segments(root: Path) -> str | None:
    """The parameters in the newest segment that has them; None where none has."""
    for path in reversed(segments.stored(root).values()):
        details = _details(path)
        if isinstance(details.get("parameters"), str):
            return str(details["parameters"])
    return None


def rebuild(
    root: Path, config: PagesConfig, progress: Progress | None = None, jobs: int | None = None
) -> None:
    """Makes the index anew from the segments, and puts it in the place of the old one."""
    try:
        with closing(Index.begin(root, config.stored)) as index:
            stored = segments.stored(root).items()
            begun = [_begin(index, config, number, path) for number, path in stored]
            with Rows(index.folder) as rows:
                learner = _Learner(root, index, rows, begun)
                learner.scan(progress, jobs)
                learner.fill(progress)
            index.publish()
    finally:
        remove_stale(root)  # or this one, where it was not finished: it may have filled the disk


def reconcile(root: Path, index: Index, calendar: Calendar) -> list[Moved]:
    """Adds to the index what the last writer had written when it was killed, and cuts off a torn record.

    Returns the pages that moved to an earlier slice: the deletion in their later slice may be missing. Raises
    TBloomError where a segment is shorter than the index knows, unless its slice has left the window.
    """
    with index.reading() as snapshot:
        known = {segment.number: segment for segment in snapshot.segments()}
        live = {slice.label for slice in snapshot.kept(calendar.since())}
    files = segments.stored(root)
    grown: list[Segment | None] = []
    for segment in known.values():
        path = segments.path_of(root, segment.label, segment.number)
        size = path.stat().st_size if files.get(segment.number) == path else 0
        if size < segment.size and segment.label in live:
            raise TBloomError(
                f"{str(path)!r} has {size} bytes, and the index knows of {segment.size}: put the file back, or make "
                "the index anew from what is there with 'tbloom pages rebuild'"
            )
        if size > segment.size:
            grown.append(segment)
    for number, path in files.items():
        if number not in known:
            grown.append(_begin(index, calendar.config, number, path))
    if not any(grown):
        return []
    with Rows(index.folder) as rows:
        learner = _Learner(root, index, rows, grown)
        learner.scan()
        return learner.merge()


def _begin(index: Index, config: PagesConfig, number: int, path: Path) -> Segment | None:
    """A segment that the index does not know, with its slice begun; None: it has no records of tbloom."""
    label = segments.label_of(path)
    start = _start_of(path, label, config)
    if start is not None:
        with index.reading() as snapshot:
            is_known = any(slice.label == label for slice in snapshot.slices)
        if not is_known:
            index.begin_slice(label, start)
        return Segment(number, label, 0, 0)
    if segments.is_torn(path) and not _has_records(path):
        logger.warning("%s is removed: its first record is torn", path)
        path.unlink()
    else:
        logger.warning("%s is left out: tbloom did not write it", path)
        with index.changing() as change:  # its number is taken
            change.pass_segment(number)
    return None


class Moved(NamedTuple):
    """A page that was put again, in an earlier slice."""

    #: The later slice, where it was before.
    label: str
    fingerprint: bytes
    #: Sequence number of the put; the deletion's is one lower.
    sequence: int


class _Learner:
    """Adds records of segments to an index: of each address the newest one, if it is a page.

    A power cut may have torn it: then an older one that is whole, unless the page was deleted in between.
    """

    def __init__(
        self, root: Path, index: Index, rows: Rows, known: Sequence[Segment | None]
    ) -> None:
        """``known``: what the index knows of the segments that have more."""
        self._root, self._index, self._rows = root, index, rows
        self._segments = [segment for segment in known if segment]
        with index.reading() as snapshot:
            #: The slices of segments, by number.
            self._slices = {one.number: snapshot.slice(one.label) for one in self._segments}
        self._sequence = self._total = 0

    def scan(self, progress: Progress | None = None, jobs: int | None = None) -> None:
        """Reads the records that the index does not know, and cuts off torn ones."""
        parts = [
            Part(path, one.number, one.size, path.stat().st_size) for one, path in self._files()
        ]
        ends = [part.begin for part in parts]
        self._total = sum(part.end for part in parts)
        done = sum(ends)
        with closing(scanning.scan(parts, jobs)) as batches:
            for place, batch in batches:
                for problem in batch.problems:
                    logger.warning("%s", problem)
                self._rows.add(batch.rows)
                self._sequence = max(self._sequence, batch.sequence)
                known = self._segments[place]
                records, size = known.records + batch.records, max(known.size, batch.size)
                self._segments[place] = known._replace(records=records, size=size)
                done += batch.end - ends[place]
                ends[place] = batch.end
                if progress is not None:
                    progress(int(done * _SCANNING), self._total)
        for (segment, path), end in zip(self._files(), ends, strict=True):
            # A segment whose first record is damaged gets no more records: nothing to cut.
            if segment.size < end and segments.segment_of(path) is not None:
                logger.warning("%s: they are cut off", path)
                os.truncate(path, segment.size)

    def fill(self, progress: Progress | None) -> None:
        """Fills an empty index, in the order of addresses."""
        for done, part in enumerate(self._rows.parts(), 1):
            while some := [*islice(part, _BATCH)]:
                several = [rows for rows in some if len(rows) > 1]
                for rows in sorted(several, key=_place_of):  # a disk reads faster in this order
                    rows[:] = [self._newest(rows)]
                with self._index.changing() as change:
                    for [row] in some:
                        if row.is_page:
                            slice = self._slices[row.segment]
                            change.append(slice, row.fingerprint, row.entry)
            if progress is not None:
                share = _SCANNING + (1 - _SCANNING) * done / PARTS
                progress(int(self._total * share), self._total)
        with self._index.changing() as change:
            self._note(change)

    def merge(self) -> list[Moved]:
        """Adds the records to an index with others, all at once; returns the pages that moved to an earlier slice."""
        moved: list[Moved] = []
        with self._index.changing() as change:
            for part in self._rows.parts():
                for rows in part:
                    fingerprint = rows[0].fingerprint
                    had = change.find(fingerprint)
                    if had is not None:
                        change.remove(had[0], fingerprint)
                        rows.append(Row(fingerprint, *had[1], is_page=True))
                        self._slices[had[1].segment] = had[0]
                    row = self._newest(rows)
                    if row.is_page:
                        change.put(self._slices[row.segment], fingerprint, row.entry)
                        moved += self._moved(row, rows)
            self._note(change)
        return moved

    def _moved(self, row: Row, rows: list[Row]) -> Iterator[Moved]:
        """Later slices that do not know that the page has left them; ``rows`` come newest first."""
        last: dict[Kept, Row] = {}
        for one in rows:
            if one.sequence < row.sequence:
                last.setdefault(self._slices[one.segment], one)
        start = self._slices[row.segment].start
        return (
            Moved(slice.label, row.fingerprint, row.sequence)
            for slice, one in last.items()
            if one.is_page and slice.start > start
        )

    def _note(self, change: Change) -> None:
        for segment in self._segments:
            change.put_segment(segment)
        change.pass_sequence(self._sequence)

    def _newest(self, rows: list[Row]) -> Row:
        """The one that counts; sorts the rows, newest first."""
        if len(rows) == 1:
            return rows[0]
        rows.sort(key=_sequence_of, reverse=True)
        pages = takewhile(attrgetter("is_page"), rows)
        return next(filter(self._is_whole, pages), rows[0])

    def _is_whole(self, row: Row) -> bool:
        path = segments.path_of(self._root, self._slices[row.segment].label, row.segment)
        try:
            members.check(segments.read(path, row.offset, row.length))
        except (members.Damaged, FileNotFoundError) as error:
            logger.warning("%s: the record at %d: %s", path, row.offset, error)
            return False
        return True

    def _files(self) -> Iterator[tuple[Segment, Path]]:
        for one in self._segments:
            yield one, segments.path_of(self._root, one.label, one.number)


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
