#!/bin/sh
# chdb-core==26.9.0 pyroaring==1.2.0 (some 1 GB in a temporary folder; no server is needed)
#
# Guess: a state of ClickHouse's groupBitmap is a byte 1, a length and a Roaring bitmap in the portable format, whatever the
# type of its ids and however many they are; so a bitmap of 32-bit ids can be given to it in that form.
#
# Instead, in ClickHouse 26.9.2 (chdb-core 26.9.0) that is true of UInt32 (and smaller types) alone. A state of UInt64, which
# toUInt64(), numbers() and most ids give, refuses it ("invalid serialized data"): it wants a map of bitmaps, that is 12 bytes more
# before the bitmap (how many bitmaps, 8 bytes; the upper half of their ids, 4 bytes). What it writes of up to 32 ids is no
# Roaring bitmap at all: a byte 0, the number of ids, and the ids in the width of their type. It also reads the Roaring forms of
# so few.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet chdb-core==26.9.0 pyroaring==1.2.0
"$folder/venv/bin/python" - <<'PYTHON'
import struct
import sys

import chdb
from pyroaring import BitMap


def ask(sql):
    try:
        return chdb.query(sql, "TSV").bytes().decode().strip()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def state(bitmap, before=b""):
    """A byte 1, the length as a varint (here of two bytes), and what it counts."""
    body = before + bitmap.serialize()
    return bytes([1, len(body) & 127 | 128, len(body) >> 7]) + body


def cardinality(kind, data):
    return ask(f"SELECT bitmapCardinality(CAST(unhex('{data.hex()}') AS AggregateFunction(groupBitmap, {kind})))")


def written(kind, count):
    return ask(f"SELECT hex(CAST(groupBitmapState(to{kind}(number)) AS String)) FROM numbers({count})")


ids = BitMap(range(0, 3000, 3))
one_map = struct.pack("<QI", 1, 0)
found = {
    "UInt32, byte 1, length, bitmap": cardinality("UInt32", state(ids)),
    "UInt64, byte 1, length, bitmap": cardinality("UInt64", state(ids)),
    "UInt64, byte 1, length, 12 bytes, bitmap": cardinality("UInt64", state(ids, one_map)),
    "UInt32 writes of 3 ids": written("UInt32", 3),
    "UInt64 writes of 3 ids": written("UInt64", 3),
    "UInt32 writes of 33 ids": written("UInt32", 33),
    "UInt64 writes of 33 ids": written("UInt64", 33),
}
print("ClickHouse", ask("SELECT version()"))
for what, answer in found.items():
    print(f"{what}: {answer[:120]}")
few = BitMap(range(33))
few.run_optimize()
roaring = few.serialize().hex().upper()
expected = [
    found["UInt32, byte 1, length, bitmap"] == "1000",
    "invalid serialized data" in found["UInt64, byte 1, length, bitmap"],
    found["UInt64, byte 1, length, 12 bytes, bitmap"] == "1000",
    found["UInt32 writes of 3 ids"] == "00 03 00000000 01000000 02000000".replace(" ", ""),
    found["UInt64 writes of 3 ids"] == "00 03" .replace(" ", "") + "".join(struct.pack("<Q", n).hex() for n in range(3)),
    found["UInt32 writes of 33 ids"] == f"01{len(roaring) // 2:02X}{roaring}",
    found["UInt64 writes of 33 ids"] == f"01{len(roaring) // 2 + 12:02X}{one_map.hex()}{roaring}",
]
sys.exit(0 if all(expected) else 1)
PYTHON
