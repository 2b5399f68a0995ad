"""The contents of the index, and their form in LMDB.

::

    meta      "parameters" -> the parameters that all users of the store must agree on (see ``config``)
              "state" -> version, sequence, segment: see ``State``
    slices    label -> the start of the slice, and the number of its table
    segments  number -> the length of its file, its number of records, its slice
    N         a table for each slice, N from 0: BLAKE2b of the address -> ``Entry``

A page stands in the table of the slice that it was put in last, and in no other one. Later slices use tables again, so
an open table stays valid.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import lmdb

META, SLICES, SEGMENTS = b"meta", b"slices", b"segments"
_STATE, _PARAMETERS = b"state", b"parameters"
_STATE_FORM, _ENTRY, _SLICE = Struct("<QQI"), Struct("<IQIqQ"), Struct("<qI")
_NUMBER, _SEGMENT = Struct(">I"), Struct("<QQ")
#: Earlier than any slice (ms).
EVER = -(1 << 62)
#: No number of the index reaches this.
_MAX = 1 << 62

#: Handles, by name, and those of slices by number.
Tables = dict[bytes | int, Any]
Transaction: TypeAlias = "lmdb.Transaction[bytes]"


class Corrupted(Exception):
    """A value of the index is none that tbloom writes."""


class Entry(NamedTuple):
    """The place of a page."""

    segment: int
    offset: int
    length: int
    #: The time when it was fetched (microseconds since the epoch).
    at: int
    #: Sequence number of the put; of two pages with one address, the higher wins.
    sequence: int


class State(NamedTuple):
    """Counters of the index."""

    #: Grows when slices come or go.
    version: int = 1
    #: The next sequence number.
    sequence: int = 1
    #: The number of the next segment.
    segment: int = 1


class Segment(NamedTuple):
    """A segment."""

    number: int
    label: str
    #: Bytes of its file that the index knows.
    size: int
    #: Its records: pages, replaced or deleted ones included, and deletions.
    records: int


class Kept(NamedTuple):
    """A slice in the index."""

    #: When it begins (ms).
    start: int
    label: str
    table: int


class Snapshot:
    """The index at one moment."""

    __slots__ = ("_tables", "_txn", "slices", "state")

    def __init__(self, tables: Tables, txn: Transaction, state: State, slices: list[Kept]) -> None:
        self._tables, self._txn = tables, txn
        self.state = state
        #: Newest first.
        self.slices = slices

    def close(self) -> None:
        """Drops the transaction; the snapshot can't be used after this."""
        del self._txn

    @property
    def parameters(self) -> str:
        """The stored parameters."""
        return (self._txn.get(_PARAMETERS, db=self._tables[META]) or b"").decode(errors="replace")

    def find(self, fingerprint: bytes, since: int = EVER) -> tuple[Kept, Entry] | None:
        """The place of the page with this address, if its slice begins at ``since`` (ms) or later."""
        tables, get = self._tables, self._txn.get
        for slice in self.slices:
            if slice.start < since:
                break
            value = get(fingerprint, db=tables[slice.table])
            if value is not None:
                return slice, Entry._make(_numbers(_ENTRY, value))
        return None

    def slice(self, label: str) -> Kept:
        """The slice with this label."""
        for slice in self.slices:
            if slice.label == label:
                return slice
        raise Corrupted(f"there is no slice {label!r}")

    def kept(self, since: int) -> list[Kept]:
        """The slices that begin at ``since`` (ms) or later, newest first."""
        return [slice for slice in self.slices if slice.start >= since]

    def pages(self, slice: Kept) -> int:
        """The number of pages in a slice."""
        return int(self._txn.stat(self._tables[slice.table])["entries"])

    def segments(self) -> list[Segment]:
        """All segments, by number."""
        with self._txn.cursor(db=self._tables[SEGMENTS]) as cursor:
            return [_segment(key, value) for key, value in cursor]

    def segments_of(self, slice: Kept) -> list[Segment]:
        """The segments of a slice, by number."""
        return [segment for segment in self.segments() if segment.label == slice.label]

    def segment(self, number: int) -> Segment | None:
        """The segment with this number."""
        key = _NUMBER.pack(number)
        value = self._txn.get(key, db=self._tables[SEGMENTS])
        return None if value is None else _segment(key, value)


class Change(Snapshot):
    """Changes of the index, committed together."""

    __slots__ = ()

    def put(self, slice: Kept, fingerprint: bytes, entry: Entry) -> None:
        """Adds a page to a slice; ``remove`` it from another one first."""
        self._txn.put(fingerprint, _ENTRY.pack(*entry), db=self._tables[slice.table])

    def append(self, slice: Kept, fingerprint: bytes, entry: Entry) -> None:
        """Adds a page behind all others of a slice; where this adds all pages, the index takes less room."""
        value = _ENTRY.pack(*entry)
        self._txn.put(fingerprint, value, append=True, db=self._tables[slice.table])

    def remove(self, slice: Kept, fingerprint: bytes) -> None:
        """Removes a page from a slice."""
        self._txn.delete(fingerprint, db=self._tables[slice.table])

    def put_segment(self, segment: Segment) -> None:
        """Stores a segment that is new or has changed."""
        value = _SEGMENT.pack(segment.size, segment.records) + segment.label.encode()
        self._txn.put(_NUMBER.pack(segment.number), value, db=self._tables[SEGMENTS])
        self.pass_segment(segment.number)

    def pass_segment(self, number: int) -> None:
        """Gives later segments higher numbers."""
        if number >= self.state.segment:
            self.state = self.state._replace(segment=number + 1)

    def begin_slice(self, label: str, start: int, table: int) -> None:
        """Adds a slice, in a table that no other slice has."""
        self._txn.put(label.encode(), _SLICE.pack(start, table), db=self._tables[SLICES])
        self.state = self.state._replace(version=self.state.version + 1)

    def drop_slice(self, slice: Kept) -> None:
        """Removes a slice and its segments."""
        tables = self._tables
        self._txn.drop(tables[slice.table], delete=False)
        self._txn.delete(slice.label.encode(), db=tables[SLICES])
        for segment in self.segments_of(slice):
            self._txn.delete(_NUMBER.pack(segment.number), db=tables[SEGMENTS])
        self.state = self.state._replace(version=self.state.version + 1)

    def pass_sequence(self, number: int) -> None:
        """Gives later puts and deletes higher numbers."""
        if number >= self.state.sequence:
            self.state = self.state._replace(sequence=number + 1)

    def next_sequence(self) -> int:
        """The sequence number for a put or a delete."""
        number = self.state.sequence
        self.pass_sequence(number)
        return number

    def save(self) -> None:
        """Stores the counters."""
        self._txn.put(_STATE, _STATE_FORM.pack(*self.state), db=self._tables[META])


def begin(txn: Transaction, tables: Tables, parameters: str) -> None:
    """Fills a new index."""
    txn.put(_PARAMETERS, parameters.encode(), db=tables[META])
    txn.put(_STATE, _STATE_FORM.pack(*State()), db=tables[META])


def state_in(txn: Transaction, tables: Tables) -> State:
    """The state that the transaction sees."""
    return State._make(_numbers(_STATE_FORM, txn.get(_STATE, db=tables[META]) or b""))


def slices_in(txn: Transaction, tables: Tables) -> list[Kept]:
    """The slices that the transaction sees, newest first."""
    with txn.cursor(db=tables[SLICES]) as cursor:
        found = [(_numbers(_SLICE, value), _label(key)) for key, value in cursor]
    return sorted((Kept(start, label, table) for (start, table), label in found), reverse=True)


def _segment(key: bytes, value: bytes) -> Segment:
    size, records = _numbers(_SEGMENT, value[: _SEGMENT.size])
    (number,) = _numbers(_NUMBER, key)
    return Segment(number, _label(value[_SEGMENT.size :]), size, records)


def _numbers(form: Struct, value: bytes) -> tuple[int, ...]:
    """The numbers in a value. Raises Corrupted."""
    try:
        numbers = form.unpack(value)
    except struct.error as error:
        raise Corrupted(str(error)) from None
    if max(numbers) >= _MAX or min(numbers) <= -_MAX:
        raise Corrupted(f"a number is out of range: {numbers}")
    return numbers


def _label(value: bytes) -> str:
    """The label of a slice, which is part of the names of files. Raises Corrupted."""
    if not value.isalnum():  # ASCII only, because these are bytes
        raise Corrupted(f"{value!r} is no label")
    return value.decode()
