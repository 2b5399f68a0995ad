#!/bin/sh
# Guess: ultimate-sitemap-parser 1.8.1 reads a lastmod that is a month or a year alone (2026-11, 2026: sitemaps.org allows
# both) as the first of it, as it reads a day alone as its midnight.
# Instead: it fills in the rest from today's date, without a word, so that an unchanged page has another last_modified each
# day, which may be in the future. Scrapy 2.19.0 gives the text; crawlee 1.11.0 gives None for both.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "ultimate-sitemap-parser==1.8.1"
cat > "$folder/months.py" <<'PYTHON'
import sys
from datetime import date
from importlib.metadata import version

from usp.tree import sitemap_from_str

LASTMODS = ["2024-05-06", "2024-05", "2024"]
entries = [f"<url><loc>https://a.example/{each}</loc><lastmod>{each}</lastmod></url>" for each in LASTMODS]
namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
text = f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{namespace}">{"".join(entries)}</urlset>'
today = date.today()
found = [str(page.last_modified) for page in sitemap_from_str(text).all_pages()]
print("ultimate-sitemap-parser", version("ultimate-sitemap-parser"), "on", today)
for row in zip(LASTMODS, found):
    print(*row, sep=" | ")
expected = ["2024-05-06 00:00:00", f"2024-05-{today:%d} 00:00:00", f"2024-{today:%m-%d} 00:00:00"]
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/months.py"
