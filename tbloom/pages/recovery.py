"""Brings the index up to the segments: after a writer was killed, or from nothing."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby, takewhile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import members, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig
from tbloom.pages.database import errors, remove_stale
from tbloom.pages.index import Index, Place
from tbloom.pages.segments import Found, Gap, Progress, Segment

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: Records that are sorted at once.
_BATCH = 20_000


class Moved(NamedTuple):
    """A page that was put again, in an earlier slice."""

    #: The start of the later slice, where it was before (ms).
    start: int
    fingerprint: bytes
    #: Sequence number of the put; the deletion's is one lower.
    sequence: int


def parameters_in_segments(root: Path) -> str | None:
    """The parameters in the newest segment that has them; None where none has."""
    firsts = map(segments.first_of, reversed(segments.stored(root).values()))
    return next((first.parameters for first in firsts if first.parameters is not None), None)


def rebuild(root: Path, config: PagesConfig, progress: Progress | None = None) -> None:
    """Makes the index anew from the segments, and puts it in the place of the old one."""
    try:
        with closing(Index.begin(root, config.stored)) as index:
            stored = segments.stored(root).items()
            begun = [_begin(config, number, path) for number, path in stored]
            with Rows(root, root / "index-1.sqlite.rows") as rows:
                learner = _Learner(root, index, rows)
                learner.scan(filter(None, begun), progress)
                learner.merge(None)
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
        path = root / segment.name
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
    moved: list[Moved] = []
    if grown:
        with Rows(root, None) as rows:
            learner = _Learner(root, index, rows)
            learner.scan(grown, None)
            learner.merge(moved)
    return moved


def _begin(config: PagesConfig, number: int, path: Path) -> Segment | None:
    """A segment that the index does not know; None: it has no records of tbloom."""
    first = segments.first_of(path)
    if first.start is not None:
        return Segment(number, path.name, first.start)
    found = segments.records(path, 0, path.stat().st_size)
    kinds = {one.head.kind: one.head.at for one in found if isinstance(one, Found)}
    if "response" in kinds:  # its first record is damaged; the time of a page tells the slice
        slice = config.slice_at(kinds["response"] // 1000)
        if slice.label == segments.label_of(path.name):
            return Segment(number, path.name, slice.start)
    if not kinds and segments.is_torn(path):
        logger.warning("%s is removed: its first record is torn", path)
        path.unlink()
    else:
        logger.warning("%s is left out: tbloom did not write it", path)
    return None


class _Learner:
    """Adds records of segments to an index: of each address the newest one, if it is a page.

    A power cut may have torn it: then an older one that is whole, unless the page was deleted in between.
    """

    def __init__(self, root: Path, index: Index, rows: Rows) -> None:
        self._root, self._index, self._rows = root, index, rows
        #: The segments that have more than the index knows, by number.
        self._segments: dict[int, Segment] = {}

    def scan(self, known: Iterable[Segment], progress: Progress | None) -> None:
        """Reads the records that the index does not know, and cuts off torn ones."""
        parts = [(one, one.size, (self._root / one.name).stat().st_size) for one in known]
        self._segments = {one.number: one for one, _, _ in parts}
        batch: list[Row] = []
        for segment, one in segments.walk(self._root, parts, progress):
            if isinstance(one, Gap):
                logger.warning("%s: %s", self._root / segment.name, one.why)
                continue
            self._note(segment.number, one)
            if one.head.kind != "warcinfo":
                batch.append(Row.of(segment.number, one))
            if len(batch) == _BATCH:
                self._rows.add(batch)
                batch = []
        self._rows.add(batch)
        for segment, _, end in parts:
            path, size = self._root / segment.name, self._segments[segment.number].size
            # A segment whose first record is damaged gets no more records: nothing to cut.
            if size < end and segments.first_of(path).segment is not None:
                logger.warning("%s: they are cut off", path)
                os.truncate(path, size)

    def merge(self, moved: list[Moved] | None) -> None:
        """Adds the records, all at once; ``moved`` gets the pages that moved to an earlier slice."""
        with self._index.transaction():
            for segment in self._segments.values():
                self._index.put_segment(segment)
            for rows in self._rows.by_address():
                fingerprint = rows[0].fingerprint
                had = self._index.find(fingerprint)
                if had is not None:
                    self._index.remove(fingerprint, had)
                    rows.append(Row(fingerprint, 0, *had[2:], is_page=True))
                newest = self._newest(rows)
                if newest.is_page:
                    segment = self._segment(newest)
                    place = Place(segment.start, segment.name, *newest[2:6])
                    self._index.put(fingerprint, place, None)
                    if moved is not None:
                        moved += self._moved(newest, rows)

    def _note(self, number: int, found: Found) -> None:
        known = self._segments[number]
        self._segments[number] = known._replace(
            size=found.offset + found.length,
            records=known.records + (found.head.kind != "warcinfo"),
            sequence=max(known.sequence, found.head.sequence),
        )

    def _segment(self, row: Row) -> Segment:
        """The segment of a row, which the index has by now."""
        segment = self._segments.get(row.segment) or self._index.segment(row.segment)
        assert segment is not None  # noqa: S101
        return segment

    def _moved(self, newest: Row, rows: list[Row]) -> Iterator[Moved]:
        """Later slices that do not know that the page has left them; ``rows`` come newest first."""
        last: dict[int, Row] = {}
        for row in rows:
            if row.sequence < newest.sequence:
                last.setdefault(self._segment(row).start, row)
        begin = self._segment(newest).start
        for start, row in last.items():
            if row.is_page and start > begin:
                yield Moved(start, newest.fingerprint, newest.sequence)

    def _newest(self, rows: list[Row]) -> Row:
        """The one that counts; ``rows`` come newest first."""
        if len(rows) == 1:
            return rows[0]
        pages = takewhile(attrgetter("is_page"), rows)
        return next(filter(self._is_whole, pages), rows[0])

    def _is_whole(self, row: Row) -> bool:
        path = self._root / self._segment(row).name
        try:
            members.check(segments.read(path, row.offset, row.length))
        except (members.Damaged, FileNotFoundError) as error:
            logger.warning("%s: the record at %d: %s", path, row.offset, error)
            return False
        return True


class Row(NamedTuple):
    """A page or a deletion in a segment."""

    fingerprint: bytes
    sequence: int
    segment: int
    offset: int
    length: int
    at: int
    is_page: bool

    @classmethod
    def of(cls, segment: int, found: Found) -> Row:
        """The row of a record."""
        head = found.head
        is_page = head.kind == "response"
        place = segment, found.offset, found.length, head.at
        return cls(head.fingerprint, head.sequence, *place, is_page)


class Rows:
    """Any number of rows, in a database of their own."""

    def __init__(self, root: Path, path: Path | None) -> None:
        """Begins; with a path, on the disk, in a file that has no name any more."""
        self._root = root
        with errors(root):
            name = ":memory:" if path is None else str(path)
            self._db = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.execute(
                "CREATE TABLE rows (address BLOB, sequence INTEGER, segment INTEGER, offset INTEGER, length INTEGER, "
                "at INTEGER, is_page INTEGER, PRIMARY KEY (address, sequence, segment, offset)) WITHOUT ROWID"
            )
        if path is not None:
            path.unlink()

    def add(self, rows: list[Row]) -> None:
        """Adds rows."""
        with errors(self._root):
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", sorted(rows))
            self._db.execute("COMMIT")

    def by_address(self) -> Iterator[list[Row]]:
        """The rows of each address, newest first, by address."""
        with errors(self._root):
            found = self._db.execute("SELECT * FROM rows ORDER BY address, sequence DESC")
            for _, rows in groupby(map(Row._make, found), attrgetter("fingerprint")):
                yield [*rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
