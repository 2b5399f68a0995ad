#!/bin/sh
# Guess: dateparser 1.5.0 reads the forms of ISO 8601 in UTC that have no colons, or no minutes (20240506T1000Z,
# 2024-05-06T10Z), as Python 3.11's fromisoformat does, or gives None, as it does for the same without the "Z".
# Instead: it takes the number before the "Z" for days (in Lower Sorbian, one of the languages that it tries) and gives the
# moment so many days ago: another one with each call, and the date in the text has no part in it. With languages=["en"] it
# gives None.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "dateparser==1.5.0"
cat > "$folder/ago.py" <<'PYTHON'
import sys
from datetime import datetime, timedelta

import dateparser
from dateparser.date import DateDataParser

AGO = {"20240506T100000Z": 100_000, "20240506T1000Z": 1000, "2024-05-06T100000Z": 100_000, "2024-05-06T10Z": 10}
READ = {"2024-05-06T10:00Z": "2024-05-06 10:00:00+00:00", "2024-05-06T10": "None", "20240506T100000": "None"}
print("dateparser", dateparser.__version__)
is_as_seen = True
for text, days in AGO.items():
    found, again = dateparser.parse(text), dateparser.parse(text)
    at = datetime.now() - timedelta(days)
    locale = DateDataParser().get_date_data(text).locale
    print(f"{text} | {found} | {again} | locale {locale} | fromisoformat {datetime.fromisoformat(text)}")
    is_as_seen &= bool(found and abs(found - at) < timedelta(hours=2) and found != again)
    is_as_seen &= dateparser.parse(text, languages=["en"]) is None
for text, expected in READ.items():
    found = str(dateparser.parse(text))
    print(text, found, sep=" | ")
    is_as_seen &= found == expected
sys.exit(not is_as_seen)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/ago.py"
