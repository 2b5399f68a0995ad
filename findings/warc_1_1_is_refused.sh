#!/bin/sh
# Guess: a file of WARC/1.1 (ISO 28500:2017; it differs from 1.0 in finer dates and two headers) is read by whatever reads 1.0
# and has had a release since.
# Instead: warc3-wet 0.2.5 (of 2024) raises OSError "Unsupported WARC version: 1.1" at the first record. warctools 5.0.1 (of
# 2025) wants to say that, too, and raises TypeError instead (it joins the versions that it knows, which are bytes, as a text);
# so end its warcdump, warcindex and warcvalid. Both read the same records as WARC/1.0; warcio 1.8.1, FastWARC 2.0.1 and Warcat
# 2.2.5 read both versions.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "warcio==1.8.1" "FastWARC==2.0.1" "Warcat==2.2.5" \
    "warc3-wet==0.2.5" "warctools==5.0.1"
cat > "$folder/versions.py" <<'PYTHON'
import contextlib
import io
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import fastwarc.warc
import hanzo.warctools
import warc
import warcat.model
import warcio
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

folder = Path(sys.argv[1])


def write(path, number):
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=False, warc_version=number)
        for page in range(20):
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/plain")], protocol="HTTP/1.1")
            body = io.BytesIO(b"page %d" % page)
            url = f"https://example.com/{page}"
            writer.write_record(writer.create_warc_record(url, "response", payload=body, http_headers=headers))


def by_warctools(path):
    archive = hanzo.warctools.ArchiveRecord.open_archive(str(path), gzip=None)
    return sum(record is not None for _, record, _ in archive.read_records(limit=None))


def by_warcat(path):
    archive = warcat.model.WARC()
    archive.load(str(path))
    return len(archive.records)


READERS = {
    "warcio": lambda path: sum(1 for _ in warcio.ArchiveIterator(path.open("rb"))),
    "FastWARC": lambda path: sum(1 for _ in fastwarc.warc.ArchiveIterator(path.open("rb"))),
    "Warcat": by_warcat,
    "warc3-wet": lambda path: sum(1 for _ in warc.open(str(path))),
    "warctools": by_warctools,
}


def read(name, path):
    try:
        return READERS[name](path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def commands(path):
    """Return which of warctools' commands end with TypeError."""
    ended = []
    for name in ("warcdump", "warcindex", "warcvalid"):
        done = subprocess.run([Path(sys.executable).with_name(name), path], capture_output=True, text=True)
        ended += [name] * ("expected str instance, bytes found" in done.stdout + done.stderr)
    return ended


found = {}
for number in ("1.0", "1.1"):
    path = folder / f"{number}.warc"
    write(path, number)
    for name in READERS:
        with contextlib.redirect_stderr(io.StringIO()):
            found[name, number] = read(name, path)
        print(f"{name} {version(name)}, WARC/{number}: {found[name, number]}")
    found["commands", number] = commands(path)
    print(f"commands of warctools that end with TypeError, WARC/{number}: {found['commands', number]}")
expected = {(name, number): 20 for number in ("1.0", "1.1") for name in READERS}
expected["commands", "1.0"] = []
expected["commands", "1.1"] = ["warcdump", "warcindex", "warcvalid"]
expected["warc3-wet", "1.1"] = "OSError: Unsupported WARC version: 1.1"
expected["warctools", "1.1"] = "TypeError: sequence item 0: expected str instance, bytes found"
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/versions.py" "$folder"
