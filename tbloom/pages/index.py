"""The index: where each page is. It is the newest SQLite database ``index-N.sqlite`` of a store.

::

    meta      the parameters that all users of the store must agree on (see ``config``)
    segments  the WARC files, each with what the index knows of it: see ``Segment``
    pages     BLAKE2b of the address -> the segment with the page, offset and length there, and time

To forget a slice, only its rows in ``segments`` are deleted. The rows of its pages then refer to no segment. Later puts
remove these, a few each, so that no put has to remove all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tbloom.pages.database import Database, unusable_index
from tbloom.pages.segments import Found, Segment, is_name

_SCHEMA = """
CREATE TABLE meta (parameters TEXT NOT NULL);
CREATE TABLE segments (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
    records INTEGER NOT NULL, sequence INTEGER NOT NULL, pages INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE pages (
    address BLOB PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER added AFTER INSERT ON pages BEGIN
    UPDATE segments SET pages = pages + 1 WHERE number = new.segment;
END;
CREATE TRIGGER removed AFTER DELETE ON pages BEGIN
    UPDATE segments SET pages = pages - 1 WHERE number = old.segment;
END;
"""
_FIND = """
SELECT start, name, segment, offset, length, at FROM pages JOIN segments ON number = segment
WHERE address = ? AND start >= ?
"""
_SEGMENTS = """
SELECT number, name, start, size, records, sequence, pages FROM segments WHERE start >= ? ORDER BY start, number
"""
_PUT_SEGMENT = """
INSERT INTO segments (number, name, start, size, records, sequence) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET size = excluded.size, records = excluded.records, sequence = excluded.sequence
"""
#: Delete the rows of forgotten slices among the next rows after an address.
_SWEEP = """
DELETE FROM pages WHERE address IN (
    SELECT address FROM (SELECT address, segment FROM pages WHERE address > ? ORDER BY address LIMIT ?)
    WHERE segment NOT IN (SELECT number FROM segments)
)
"""
#: For each address, the newest of the records that the index does not know.
_NEW_RECORDS = """
CREATE TEMP TABLE records (
    address BLOB PRIMARY KEY, sequence INTEGER, segment INTEGER, offset INTEGER, length INTEGER, at INTEGER,
    is_page INTEGER
) WITHOUT ROWID
"""
_ADD_RECORD = """
INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (address) DO UPDATE SET
sequence = excluded.sequence, segment = excluded.segment, offset = excluded.offset, length = excluded.length,
at = excluded.at, is_page = excluded.is_page WHERE excluded.sequence > sequence
"""
#: One of so many puts sweeps, over so many rows: 16 rows for each put. It begins anywhere, so every row gets its turn, and
#: in a full window about a sixteenth of the rows are of forgotten slices.
_SWEEPING, _SWEPT_ROWS = 64, 1024
#: All numbers in the index are smaller.
_MAX = 1 << 62


class Place(NamedTuple):
    """The place of a page in the files. Places sort in the order in which they are read fastest."""

    #: The start of its slice (ms), and the name of its file.
    start: int
    name: str
    segment: int
    offset: int
    length: int
    #: The time when it was fetched (microseconds since the epoch).
    at: int


class Index(Database):
    """The index of a store."""

    #: The number of puts by this object.
    _puts: int = 0

    @classmethod
    @contextmanager
    def create(cls, root: Path, parameters: str) -> Iterator[Index]:
        """Yield a new index. It replaces the earlier ones at the end of the block."""
        with closing(cls(root, writes=True)) as index, index.creating(_SCHEMA):
            index.execute("INSERT INTO meta VALUES (?)", parameters)
            yield index

    @property
    def parameters(self) -> str:
        """The stored parameters."""
        return "".join(str(value) for (value,) in self.execute("SELECT parameters FROM meta"))

    def find(self, fingerprint: bytes, since: int = 0) -> Place | None:
        """Return the place of the page with this address; None if there is none, or its slice begins before ``since`` (ms)."""
        for row in self.execute(_FIND, fingerprint, since):
            place = Place._make(row)
            self._check(place, place.segment, place[2:5])
            return place
        return None

    def segments(self, since: int = 0) -> list[Segment]:
        """Return the segments of the slices that begin at ``since`` (ms) or later, slice by slice."""
        found = [Segment._make(row) for row in self.execute(_SEGMENTS, since)]
        for segment in found:
            self._check(segment, segment.number, (segment.number, *segment[3:]))
        return found

    def spans(self, segment: int) -> list[tuple[int, int]]:
        """Return the ranges of bytes that hold the current pages of a segment, in order; adjacent ones are joined."""
        found = self.execute(
            "SELECT offset, offset + length FROM pages WHERE segment = ? ORDER BY offset", segment
        )
        joined: list[tuple[int, int]] = []
        for begin, end in found:
            if joined and joined[-1][1] == begin:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((begin, end))
        return joined

    @property
    def last_number(self) -> int:
        """The highest number that a segment has ever had. Rows of forgotten pages may still refer to it."""
        return max(
            (int(number) for (number,) in self.execute("SELECT seq FROM sqlite_sequence")),
            default=0,
        )

    def put(self, fingerprint: bytes, place: Place) -> None:
        """Add a page, or replace the one with this address."""
        self.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)", fingerprint, *place[2:])
        if self._puts % _SWEEPING == 0:
            self.execute(_SWEEP, os.urandom(len(fingerprint)), _SWEPT_ROWS)
        self._puts += 1

    def remove(self, fingerprint: bytes) -> None:
        """Remove a page."""
        self.execute("DELETE FROM pages WHERE address = ?", fingerprint)

    def remove_pages_of(self, segments: Iterable[int]) -> None:
        """Remove the rows of segments that were forgotten, and are added again."""
        last = self.last_number
        for number in segments:
            if number <= last:  # else it is new, and the index is not searched for it
                self.execute("DELETE FROM pages WHERE segment = ?", number)

    def put_segment(self, segment: Segment) -> None:
        """Add a segment, or update it."""
        self.execute(_PUT_SEGMENT, *segment[:-1])

    def forget(self, since: int) -> None:
        """Forget the slices that begin before ``since`` (ms)."""
        self.execute("DELETE FROM segments WHERE start < ?", since)

    @contextmanager
    def adding_records(self) -> Iterator[None]:
        """Add the records that the block passes to ``add_record``, all at its end.

        They are newer than those that the index knows: a page replaces an earlier one, a deletion removes it.
        """
        with self.transaction():
            self.execute(_NEW_RECORDS)
            yield
            self.execute("DELETE FROM pages WHERE address IN (SELECT address FROM records)")
            self.execute(
                "INSERT INTO pages SELECT address, segment, offset, length, at FROM records WHERE is_page"
            )
            self.execute("DROP TABLE records")

    def add_record(self, segment: int, found: Found) -> None:
        """Add a record of a segment."""
        head = found.head
        place = segment, found.offset, found.length, head.at
        self.execute(_ADD_RECORD, head.fingerprint, head.sequence, *place, head.kind == "response")

    @contextmanager
    def snapshot(self) -> Iterator[Index]:
        """Yield the index as it is now, whatever is changed during the block."""
        with closing(Index(self.root)) as index:
            index.execute("BEGIN")
            index.segments()  # the first query begins the snapshot
            yield index

    def _check(self, found: Place | Segment, number: int, counts: tuple[object, ...]) -> None:
        """Raise TBloomError if tbloom did not write this row: its name would be opened as a file."""
        is_known = all(type(count) is int and 0 <= count < _MAX for count in counts)
        is_start = type(found.start) is int and abs(found.start) < _MAX
        if not is_known or not is_start or not is_name(found.name, number):
            raise unusable_index(self.root, f"a row is {tuple(found)}")
