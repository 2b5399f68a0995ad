#!/bin/sh
# Guess: FastWARC 2.0.1 reads the dates of RFC 3339 and no others; warcio 1.8.1 reads these, too, and drops their zones.
# Instead: FastWARC gives None for a date alone (2019-06-03, which WARC/1.1 allows) and for a time without a zone; warcio
# takes the zone +0200 for 20 milliseconds, and raises TypeError for +02:00, which FastWARC reads.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "warcio==1.8.1" "FastWARC==2.0.1"
cat > "$folder/dates.py" <<'PYTHON'
import sys
from importlib.metadata import version
from io import BytesIO

from fastwarc.warc import ArchiveIterator
from warcio.timeutils import iso_date_to_datetime

EXPECTED = [
    ("2019-06-03T04:05:06Z", "2019-06-03 04:05:06+00:00", "2019-06-03 04:05:06"),
    ("2019-06-03", "None", "2019-06-03 00:00:00"),
    ("2019-06-03T04:05:06", "None", "2019-06-03 04:05:06"),
    ("2019-06-03T04:05:06+02:00", "2019-06-03 04:05:06+02:00", "TypeError"),
    ("2019-06-03T04:05:06+0200", "2019-06-03 04:05:06+02:00", "2019-06-03 04:05:06.020000"),
]


def by_fastwarc(date):
    head = f"WARC/1.1\r\nWARC-Type: resource\r\nWARC-Date: {date}\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
    return str(next(ArchiveIterator(BytesIO(head.encode()))).record_date)


def by_warcio(date):
    try:
        return str(iso_date_to_datetime(date))
    except Exception as error:
        return type(error).__name__


print("warcio", version("warcio"), "FastWARC", version("FastWARC"))
found = [(date, by_fastwarc(date), by_warcio(date)) for date, _, _ in EXPECTED]
for row in found:
    print(*row, sep=" | ")
sys.exit(found != EXPECTED)
PYTHON
"$folder/venv/bin/python" "$folder/dates.py"
