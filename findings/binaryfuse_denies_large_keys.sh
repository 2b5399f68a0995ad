#!/bin/sh
# Guess: binaryfuse 0.1.2 has each of its keys, 64-bit hashes too (its README speaks of integers and 64-bit hashes, and a fuse
# filter has no false negatives), also after pickle, for which the README promises full support.
# Instead: it denies each integer from 2 ** 61 - 1 on, that is 7 of 8 keys if they are 64-bit hashes. And keys may be texts or
# bytes, but a filter of them that was pickled denies all in another process. Python's hash() explains both: of an integer it is
# the rest modulo 2 ** 61 - 1, and of a text another one in each process.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "binaryfuse==0.1.2"
cat > "$folder/keys.py" <<'PYTHON'
import hashlib
import pickle
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from binary_fuse import BinaryFuse8, BinaryFuse16

COUNT = 10_000
URLS = [f"https://example.com/{page}" for page in range(COUNT)]
HASHES = [int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "big") for url in URLS]
KEYS = {"texts": URLS, "bytes": [url.encode() for url in URLS], "small integers": list(range(COUNT)), "64-bit hashes": HASHES}


def count(keys, filter_):
    return sum(key in filter_ for key in keys)


def found_in(folder):
    """Return how many of each kind of keys the pickled filters have."""
    return {name: count(keys, pickle.loads((folder / name).read_bytes())) for name, keys in KEYS.items()}


folder = Path(sys.argv[1])
if len(sys.argv) > 2:
    print(found_in(folder))
    sys.exit()
print("binaryfuse", version("binaryfuse"), "Python", sys.version.split()[0])
made = {}
for name, keys in KEYS.items():
    eight, sixteen = BinaryFuse8(keys), BinaryFuse16(keys)
    made[name] = count(keys, sixteen)
    print(f"{name}: BinaryFuse8 has {count(keys, eight)} of {COUNT}, BinaryFuse16 {made[name]}")
    (folder / name).write_bytes(pickle.dumps(sixteen))
edge = [value in BinaryFuse16([value]) for value in (2**61 - 2, 2**61 - 1, 2**62, 2**64 - 1)]
print("2 ** 61 - 2, 2 ** 61 - 1, 2 ** 62 and 2 ** 64 - 1, in a filter of one key:", edge)
again = found_in(folder)
command = [sys.executable, __file__, folder, "other"]
other = eval(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
print("pickled, in this process:", again)
print("pickled, in another one:", other)
small = sum(key < 2**61 - 1 for key in HASHES)
is_as_seen = (
    edge == [True, False, False, False]
    and made["texts"] == made["bytes"] == made["small integers"] == COUNT
    and small <= made["64-bit hashes"] < small + COUNT / 100
    and again == made
    and other["small integers"] == COUNT
    and max(other["texts"], other["bytes"]) < COUNT / 100
)
sys.exit(not is_as_seen)
PYTHON
"$folder/venv/bin/python" "$folder/keys.py" "$folder"
