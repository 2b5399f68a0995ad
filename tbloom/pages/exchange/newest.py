"""The last change of each address in the segments of a page store, so that an import brings back no page that was replaced or
deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress

from tbloom.pages import record
from tbloom.pages.database import temporary_errors
from tbloom.pages.exchange.responses import Fields
from tbloom.pages.exchange.stream import Records
from tbloom.pages.members import Damaged
from tbloom.pages.page import fingerprint_of

_CREATE = "CREATE TABLE newest (address BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID"
_PUT = """
INSERT INTO newest VALUES (?, ?) ON CONFLICT (address) DO UPDATE SET number = max(number, excluded.number)
"""
_FIND = "SELECT number FROM newest WHERE address = ?"

#: The fingerprint of an address, and the sequence number of its put or delete.
Change = tuple[bytes, int]


def change_of(fields: Fields) -> Change | None:
    """Return the change that a record of a segment makes; None for other records."""
    if not (text := fields.get(record.SEQUENCE)):
        return None
    try:
        number = int(text)
        address = bytes.fromhex(fields.get(record.DELETED))
        key = bytes.fromhex(fields.get(record.KEY))
        address = address or fingerprint_of(key or fields.url)
    except ValueError:
        return None
    return (address, number) if 0 < number < record.MAX_SEQUENCE else None


class Newest:
    """The last change of each address, in a temporary file if there are many."""

    def __init__(self, files: Iterable[Records]) -> None:
        """Read the fields of all records of the files, but no bodies. Raise OSError if there is no room for the changes."""
        self._found = sqlite3.connect("")
        with temporary_errors():
            self._found.execute(_CREATE)
            for records in files:
                with suppress(OSError):  # the file is named when its turn comes
                    self._found.executemany(_PUT, _changes(records))

    def has_later(self, change: Change) -> bool:
        """Return True if the address has a later change."""
        address, number = change
        with temporary_errors():
            found = self._found.execute(_FIND, [address]).fetchone()
        return found is not None and found[0] > number


def _changes(records: Records) -> Iterator[Change]:
    is_open = True
    while is_open:
        try:
            if (head := records.head()) is None:
                return
            fields = Fields(head)
            if change := change_of(fields):
                yield change
            records.skip(fields.length)
            records.end()
        except Damaged:
            is_open = records.find_next()
