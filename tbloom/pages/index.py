"""The index: where each page is. It is the newest SQLite database ``index-N.sqlite`` of a store.

::

    meta      the parameters that all users of the store must agree on (see ``config``)
    segments  the WARC files, each with what the index knows of it: see ``Segment``
    pages     BLAKE2b of the address -> the segment with the page, offset and length there, and time
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tbloom.pages.database import Database, damaged

_SCHEMA = """
CREATE TABLE meta (parameters TEXT NOT NULL, flushes INTEGER NOT NULL);
CREATE TABLE segments (
    number INTEGER PRIMARY KEY, label TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
    records INTEGER NOT NULL, sequence INTEGER NOT NULL, pages INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE pages (
    address BLOB PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
"""
_FIND = """
SELECT start, label, segment, offset, length, at FROM pages JOIN segments ON number = segment
WHERE address = ? AND start >= ?
"""
_SEGMENTS = "SELECT number, label, start, size, records, sequence, pages FROM segments"
_PUT_SEGMENT = """
INSERT INTO segments (number, label, start, size, records, sequence) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET size = excluded.size, records = excluded.records, sequence = excluded.sequence
"""
_FORGET = """
DELETE FROM pages WHERE address >= ? AND address < ? AND segment IN (SELECT number FROM segments WHERE start < ?)
"""
#: Addresses, which are digests, are removed in this many steps.
_STEPS = 256
#: Earlier than any slice (ms).
EVER = -(1 << 62)
#: No number of the index reaches this.
_MAX = 1 << 62


class Place(NamedTuple):
    """Where a page is. Places sort as they are read fastest."""

    #: The start of its slice (ms), and its label.
    start: int
    label: str
    segment: int
    offset: int
    length: int
    #: The time when it was fetched (microseconds since the epoch).
    at: int


class Segment(NamedTuple):
    """A segment."""

    number: int
    #: The label of its slice, and its start (ms).
    label: str
    start: int
    #: Bytes of its file that the index knows.
    size: int = 0
    #: Its records: pages, replaced or deleted ones included, and deletions.
    records: int = 0
    #: The sequence number of the last one; those of all later puts and deletions are higher.
    sequence: int = 0
    #: Its current pages. (``put_segment`` leaves them alone.)
    pages: int = 0


class Index(Database):
    """The index of a store."""

    def __init__(self, root: Path, *, writes: bool = False) -> None:
        """The newest one; it is opened when it is used."""
        super().__init__(root, writes=writes)
        #: Pages that the current change adds to each segment.
        self._counts: Counter[int] = Counter()

    @classmethod
    def begin(cls, root: Path, parameters: str) -> Index:
        """Begins another index; it is not used before ``publish``."""
        index = cls(root, writes=True)
        try:
            index.create(_SCHEMA)
            index.rows("INSERT INTO meta VALUES (?, 0)", parameters)
        except BaseException:
            index.close()
            raise
        return index

    @property
    def parameters(self) -> str:
        """The stored parameters."""
        return "".join(str(value) for (value,) in self.rows("SELECT parameters FROM meta"))

    def find(self, fingerprint: bytes, since: int = EVER) -> Place | None:
        """The place of the page with this address, if its slice begins at ``since`` (ms) or later."""
        for row in self.rows(_FIND, fingerprint, since):
            place = Place._make(row)
            self._check(place, place[2:5])
            return place
        return None

    def segments(self, since: int = EVER) -> list[Segment]:
        """The segments of the slices that begin at ``since`` (ms) or later, slice by slice."""
        return self._segments("WHERE start >= ? ORDER BY start, number", since)

    def segment(self, number: int) -> Segment | None:
        """The segment with this number."""
        return next(iter(self._segments("WHERE number = ?", number)), None)

    def last_segment(self, label: str) -> Segment | None:
        """The last segment of a slice."""
        found = self._segments("WHERE label = ? ORDER BY number DESC LIMIT 1", label)
        return next(iter(found), None)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Changes of pages and segments, as in ``transaction``."""
        with self.transaction():
            self._counts.clear()
            yield
            for number, pages in self._counts.items():
                self.rows("UPDATE segments SET pages = pages + ? WHERE number = ?", pages, number)

    def put(self, fingerprint: bytes, place: Place, had: Place | None) -> None:
        """Adds a page within a change; ``had`` is the place that it has now."""
        self.rows("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)", fingerprint, *place[2:])
        self._counts[place.segment] += 1
        if had is not None:
            self._counts[had.segment] -= 1

    def remove(self, fingerprint: bytes, had: Place) -> None:
        """Removes a page, which has this place, within a change."""
        self.rows("DELETE FROM pages WHERE address = ?", fingerprint)
        self._counts[had.segment] -= 1

    def put_segment(self, segment: Segment) -> None:
        """Stores a segment that is new or has changed, within a change."""
        self.rows(_PUT_SEGMENT, *segment[:-1])

    def forget(self, since: int) -> None:
        """Removes the slices that begin before ``since`` (ms)."""
        for step in range(_STEPS):  # so that the log stays short
            bounds = bytes([step]), bytes([step + 1]) if step + 1 < _STEPS else b"\xff" * 17
            self.rows(_FORGET, *bounds, since)
        self.rows("DELETE FROM segments WHERE start < ?", since)

    @contextmanager
    def snapshot(self) -> Iterator[Index]:
        """The index as it is now, until the end of the block, whatever is changed meanwhile."""
        with closing(Index(self.root)) as index:
            index.freeze()
            yield index

    def freeze(self) -> None:
        """Keeps the state that it has now until it is closed."""
        self.rows("BEGIN")
        self.segments()  # the first look begins it

    def _segments(self, condition: str, *values: object) -> list[Segment]:
        rows = self.rows(f"{_SEGMENTS} {condition}", *values)
        found = [Segment._make(row) for row in rows]
        for segment in found:
            self._check(segment, (segment.number, *segment[3:]))
        return found

    def _check(self, found: Place | Segment, counts: tuple[Any, ...]) -> None:
        """Raises TBloomError where tbloom did not write this: a label is part of file names."""
        numbers, label = (found.start, *counts), found.label
        is_known = all(type(number) is int and abs(number) < _MAX for number in numbers)
        is_label = isinstance(label, str) and label.isalnum() and label.isascii()
        if not is_known or not is_label or min(counts) < 0:
            raise damaged(self.root, f"a row is {tuple(found)}")
