#!/bin/sh
# Guess: libraries for gzip give all members of a file (a feed that each crawl appends to has one for each), or an error, as
# Python's gzip and Node's zlib do; and an error for a file whose end is missing.
# Instead: deflate 0.9.0 (Python) and fflate 0.8.3 (npm; gunzipSync and gunzip) give the first member alone, without an error;
# fflate's stream gives both. rapidgzip 0.16.2 and indexed_gzip 1.10.3 give both, but of a file that is cut what they could
# read, without an error, where isal 1.9.1, zlib-ng 1.1.0 and pgzip 0.4.0 raise EOFError.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "deflate==0.9.0" "rapidgzip==0.16.2" "indexed_gzip==1.10.3" \
    "isal==1.9.1" "zlib-ng==1.1.0" "pgzip==0.4.0"
npm install --silent --no-audit --no-fund --prefix "$folder" "fflate@0.8.3"
cat > "$folder/read.py" <<'PYTHON'
import gzip
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import deflate
import indexed_gzip
import pgzip
import rapidgzip
from isal import igzip
from zlib_ng import gzip_ng

folder = Path(sys.argv[1])
whole, cut = folder / "whole.gz", folder / "cut.gz"
crawls = ["".join(f"/{page}\n" for page in range(start, start + 1000)) for start in (1000, 2000)]
data = b"".join(gzip.compress(crawl.encode()) for crawl in crawls)
whole.write_bytes(data)
cut.write_bytes(data[:-200])

READERS = {
    "gzip": lambda path: gzip.open(path).read(),
    "deflate": lambda path: deflate.gzip_decompress(path.read_bytes()),
    "rapidgzip": lambda path: rapidgzip.open(str(path), parallelization=1).read(),
    "indexed_gzip": lambda path: indexed_gzip.IndexedGzipFile(str(path)).read(),
    "isal": lambda path: igzip.open(path).read(),
    "zlib-ng": lambda path: gzip_ng.open(path).read(),
    "pgzip": lambda path: pgzip.open(str(path), "rb", thread=1).read(),
}
LINES = "console.log(Buffer.from(data).toString().split('\\n').length - 1)"
NODE = {
    "fflate.gunzipSync": f"const data = fflate.gunzipSync(file); {LINES}",
    "fflate.gunzip": f"fflate.gunzip(file, (error, data) => {{ if (error) throw error; {LINES} }})",
    "fflate.Gunzip": f"const all = []; new fflate.Gunzip(each => all.push(each)).push(file, true); const data = Buffer.concat(all); {LINES}",
    "zlib": f"const data = require('zlib').gunzipSync(file); {LINES}",
}


def lines(reader, path):
    try:
        return reader(path).count(b"\n")
    except Exception as error:
        return type(error).__name__


def node_lines(program):
    start = f"const fflate = require('fflate'); const file = require('fs').readFileSync('{whole.name}'); "
    done = subprocess.run(["node", "-e", start + program], cwd=folder, capture_output=True, text=True, check=True)
    return int(done.stdout)


for package in list(READERS)[1:]:
    print(package, version(package), end="; ")
print("fflate 0.8.3, Node", subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip())
found = {name: (lines(reader, whole), lines(reader, cut)) for name, reader in READERS.items()}
by_node = {name: node_lines(program) for name, program in NODE.items()}
for name, (both, part) in found.items():
    print(f"{name}: {both} of 2000 lines; of the file without its end: {part}")
for name, both in by_node.items():
    print(f"{name}: {both} of 2000 lines")
is_as_seen = (
    found["deflate"][0] == 1000
    and all(both == 2000 for name, (both, _) in found.items() if name != "deflate")
    and all(1000 < found[name][1] < 2000 for name in ("rapidgzip", "indexed_gzip"))
    and all(found[name][1] == "EOFError" for name in ("gzip", "isal", "zlib-ng", "pgzip"))
    and by_node == {"fflate.gunzipSync": 1000, "fflate.gunzip": 1000, "fflate.Gunzip": 2000, "zlib": 2000}
)
sys.exit(not is_as_seen)
PYTHON
"$folder/venv/bin/python" "$folder/read.py" "$folder"
