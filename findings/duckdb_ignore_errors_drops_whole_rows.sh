#!/bin/sh
# Guess: DuckDB 2.0.1's read_csv(ignore_errors=true) skips the one bad row of a CSV feed whose writer was killed inside a quoted
# field and which the next crawl was appended to: the torn row, joined to the first one of the next crawl.
# Instead: with the dialect found by itself, it takes quotes for letters, because of that row, and skips every row with a comma
# in quotes, in both crawls: half of the feed here, without a word. With the dialect and columns given, or with the torn row
# behind the 20,480 lines that it looks at first, it reads nothing of what follows: the whole second crawl is missing. pandas
# 3.1.1 (on_bad_lines="skip") and pyarrow 26.0.1 (invalid_row_handler) lose the one row.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "duckdb==2.0.1" "pandas==3.1.1" "pyarrow==26.0.1"
cat > "$folder/torn.py" <<'PYTHON'
import csv
import os
import sys
from importlib.metadata import version

import duckdb
import pandas
from pyarrow import csv as arrow

DIALECT = """, auto_detect = false, header = true, delim = ',', quote = '"', escape = '"'"""
DIALECT += ", columns = {'url': 'VARCHAR', 'title': 'VARCHAR'}"


def write(before, after):
    """Write a crawl, the beginning of a row, and another crawl, whose titles are quoted in every second row."""
    with open("feed.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["url", "title"])
        for page in range(before + after + 1):
            if page == before:
                file.write(f'/{page},"A page, of')
            else:
                rows.writerow([f"/{page}", f"A page, of {page}" if page % 2 else f"Page {page}"])


def duckdb_reads(options=""):
    query = f"SELECT url FROM read_csv('feed.csv', ignore_errors = true{options})"
    return [url for [url] in duckdb.sql(query).fetchall()]


def arrow_reads():
    skip = arrow.ParseOptions(invalid_row_handler=lambda row: "skip")
    return arrow.read_csv("feed.csv", parse_options=skip)["url"].to_pylist()


os.chdir(sys.argv[1])
for package in ("duckdb", "pandas", "pyarrow"):
    print(package, version(package))
found = []
for before, after in [(3000, 3000), (30000, 3000)]:
    write(before, after)
    for name, urls in {
        "duckdb, dialect found": duckdb_reads(),
        "duckdb, dialect given": duckdb_reads(DIALECT),
        "pandas": pandas.read_csv("feed.csv", on_bad_lines="skip").url.tolist(),
        "pyarrow": arrow_reads(),
    }.items():
        first = sum(int(url[1:]) < before for url in urls)
        found.append((first, len(urls) - first))
        print(f"{before} whole rows, a torn one, {after} more | {name}: {first} and {len(urls) - first}")
expected = [(1500, 1500), (3000, 0), (3000, 2999), (3000, 2999)]
expected += [(30000, 0), (30000, 0), (30000, 2999), (30000, 2999)]
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/torn.py" "$folder"
