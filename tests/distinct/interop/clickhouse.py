"""Gives a bitmap in Roaring's portable format to ClickHouse as a state of groupBitmap, takes 20 out and puts 2^32 - 1 in, and writes
the state that it makes as such a bitmap. The number of ids that it was given goes to standard error.

Run it with the type of ClickHouse's ids, UInt32 or UInt64.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import chdb
from pyroaring import BitMap

#: What stands before the bitmap in a state: a map of bitmaps by the upper halves of their ids, with one for 0.
BEFORE = {"UInt32": b"", "UInt64": struct.pack("<QI", 1, 0)}


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def to_state(kind: str, bitmap: bytes) -> bytes:
    body = BEFORE[kind] + bitmap
    return b"\1" + varint(len(body)) + body


def from_state(kind: str, state: bytes) -> bytes:
    if state[0] == 0:  # up to 32 ids, as they are
        code = {"UInt32": "I", "UInt64": "Q"}[kind]
        return bytes(BitMap(struct.unpack(f"<{state[1]}{code}", state[2:])).serialize())
    end = next(place for place in range(1, len(state)) if state[place] < 128) + 1
    return state[end:].removeprefix(BEFORE[kind])


def main(kind: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state"
        file.write_bytes(to_state(kind, sys.stdin.buffer.read()))
        state = f"CAST(s AS AggregateFunction(groupBitmap, {kind}))"
        source = f"FROM file('{file}', RawBLOB, 's String')"
        print(chdb.query(f"SELECT bitmapCardinality({state}) {source}").bytes().decode(), file=sys.stderr)  # fmt: skip
        change = f"bitmapXor({state}, bitmapBuild(CAST([20, 4294967295] AS Array({kind}))))"
        made = chdb.query(f"SELECT CAST({change} AS String) {source}", "RawBLOB").bytes()
    sys.stdout.buffer.write(from_state(kind, made))


main(sys.argv[1])
