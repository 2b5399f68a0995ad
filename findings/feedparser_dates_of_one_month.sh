#!/bin/sh
# Guess: of a date that it can't read, feedparser 6.0.14 gives None (so its documentation), as it does for 05.11.2026.
# Instead: of 2024/05/06, 2024.05.06 and the week 2024-W19-1 it takes the year, and adds today's month and the day 1, without
# "bozo". So all dates of a year are one: an entry that has changed keeps its date, and with the next month all entries have
# another one. A time without colons (20240506T100000Z, which is ISO 8601) becomes midnight. dateutil 4.0.0 reads all of these
# but the week.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "feedparser==6.0.14" "python-dateutil==4.0.0"
cat > "$folder/dates.py" <<'PYTHON'
import sys
from datetime import date, datetime
from importlib.metadata import version

import feedparser
from dateutil.parser import ParserError
from dateutil.parser import parse as by_dateutil

DATES = ["2024-05-06", "2024/05/06", "2024/11/30", "2024.05.06", "2024-W19-1", "20240506T100000Z", "06.05.2024"]


def by_feedparser(text):
    feed = feedparser.parse(
        f'<feed xmlns="http://www.w3.org/2005/Atom"><title>Feed</title>'
        f"<entry><id>urn:1</id><updated>{text}</updated></entry></feed>"
    )
    parsed = feed.entries[0].updated_parsed
    return (parsed and str(datetime(*parsed[:6]))), feed.bozo


def dateutil_reads(text):
    try:
        return str(by_dateutil(text))
    except ParserError:
        return "ParserError"


today = date.today()
print("feedparser", version("feedparser"), "dateutil", version("python-dateutil"), "on", today)
found = [by_feedparser(text) for text in DATES]
others = [dateutil_reads(text) for text in DATES]
for text, each, other in zip(DATES, found, others):
    print(f"{text} | {each} | dateutil: {other}")
midnight = f"{today:%m}-01 00:00:00"
expected = ["2024-05-06 00:00:00", *[f"2024-{midnight}"] * 4, "2024-05-06 00:00:00", None]
expected_others = ["2024-05-06 00:00:00", "2024-05-06 00:00:00", "2024-11-30 00:00:00", "2024-05-06 00:00:00"]
expected_others += ["ParserError", "2024-05-06 10:00:00+00:00"]
sys.exit(found != [(text, False) for text in expected] or others[:-1] != expected_others)
PYTHON
"$folder/venv/bin/python" "$folder/dates.py"
