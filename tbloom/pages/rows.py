"""Rows: what the index needs of each record, in the order of addresses.

They are distributed by the first bits of the address, which is a digest, so the parts are of like size. Each is
sorted in memory when it is its turn: 100 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from tbloom.pages.segments import Found
from tbloom.pages.snapshot import Entry

if TYPE_CHECKING:
    from typing_extensions import Self

_FORM = Struct("<16sIQIqQ?")
#: Bytes of a row.
LENGTH = _FORM.size
#: Few enough that a process may have them open all.
PARTS = 128
_SHIFT = 8 - (PARTS.bit_length() - 1)
#: Bytes of a part that are kept in memory: 64 MB of all.
_IN_MEMORY = 1 << 19
_fingerprint_of = itemgetter(slice(16))


class Row(NamedTuple):
    """A page or a deletion in a segment."""

    fingerprint: bytes
    segment: int
    offset: int
    length: int
    at: int
    sequence: int
    is_page: bool

    @classmethod
    def of(cls, segment: int, found: Found) -> Row:
        """The row of a record."""
        head = found.head
        place = segment, found.offset, found.length
        return cls(head.fingerprint, *place, head.at, head.sequence, head.kind == "response")

    @property
    def packed(self) -> bytes:
        """Its bytes."""
        return _FORM.pack(*self)

    @property
    def entry(self) -> Entry:
        """Its entry in the index."""
        return Entry._make(self[1:6])


def unpacked(packed: bytes) -> Iterator[Row]:
    """The rows in some bytes."""
    return map(Row._make, _FORM.iter_unpack(packed))


class Rows:
    """Any number of rows."""

    def __init__(self, folder: Path) -> None:
        """Begins; where there are many, they are kept in nameless files of the folder."""
        with ExitStack() as stack:
            self._parts = [
                stack.enter_context(SpooledTemporaryFile(_IN_MEMORY, dir=str(folder)))
                for _ in range(PARTS)
            ]
            self._stack = stack.pop_all()

    def add(self, packed: bytes) -> None:
        """Adds packed rows."""
        parts = self._parts
        for begin in range(0, len(packed), LENGTH):
            parts[packed[begin] >> _SHIFT].write(packed[begin : begin + LENGTH])

    def parts(self) -> Iterator[Iterator[list[Row]]]:
        """The rows of each address, by address, part by part."""
        for part in self._parts:
            part.seek(0)
            rows = sorted(iter(partial(part.read, LENGTH), b""))
            part.close()
            yield ([*unpacked(b"".join(group))] for _, group in groupby(rows, _fingerprint_of))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
