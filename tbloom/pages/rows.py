"""Rows: what the index needs of each record, in the order of addresses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tbloom.pages.database import errors
from tbloom.pages.segments import Found

if TYPE_CHECKING:
    from typing_extensions import Self


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
