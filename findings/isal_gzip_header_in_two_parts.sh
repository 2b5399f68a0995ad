#!/bin/sh
# Guess: a decompressor of isal 1.9.1 that is given a gzip file in pieces gives what zlib gives, wherever the pieces are cut.
# Instead: where a piece ends within the header of a member, and that has an extra field and a name, or a checksum of its own
# (RFC 1952), it raises IsalError for many of the places; with the whole header in one piece it reads the same file.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "isal==1.9.1"
cat > "$folder/header.py" <<'PYTHON'
import gzip
import struct
import sys
import zlib
from importlib.metadata import version

from isal import igzip_lib

CONTENT = b"a page\n" * 10
EXTRA, NAME, CHECKSUM = 4, 8, 2


def file_with(flags):
    head = bytes([31, 139, 8, flags, 0, 0, 0, 0, 0, 255])
    if flags & EXTRA:
        head += struct.pack("<H2sHII", 12, b"sl", 8, 0, 1)
    if flags & NAME:
        head += b"name.warc\0"
    if flags & CHECKSUM:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head, head + gzip.compress(CONTENT)[10:]


def read(decompressor, file, at):
    try:
        return decompressor.decompress(file[:at]) + decompressor.decompress(file[at:]) == CONTENT
    except (igzip_lib.IsalError, zlib.error):
        return False


print("isal", version("isal"))
found = {}
for name, flags in [("none", 0), ("extra", EXTRA), ("name", NAME), ("extra, name", EXTRA | NAME), ("checksum", CHECKSUM)]:
    head, file = file_with(flags)
    cuts = range(1, len(head) + 1)
    by_zlib = sum(read(zlib.decompressobj(31), file, at) for at in cuts)
    by_isal = sum(read(igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), file, at) for at in cuts)
    found[name] = (len(cuts), by_zlib, by_isal)
    print(f"{name}: cut in {len(cuts)} places; zlib reads {by_zlib}, isal {by_isal}")
is_as_seen = all(cuts == by_zlib for cuts, by_zlib, _ in found.values()) and {
    name for name, (cuts, _, by_isal) in found.items() if by_isal < cuts
} == {"extra, name", "checksum"}
sys.exit(0 if is_as_seen else "this is not what was seen")
PYTHON
"$folder/venv/bin/python" "$folder/header.py"
