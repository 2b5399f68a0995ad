#!/bin/sh
# Guess: advertools 0.18.0's sitemap_to_df gives lastmod as dates in UTC, as it does for a sitemap of days or of times, row by
# row, also if a site writes some of them as days, or with fractions of a second.
# Instead: one lastmod of another form than the first one, and the whole column stays text, without a word. Sorted or
# compared, 10:00+02:00 is then later than 09:00Z, an hour before it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "advertools==0.18.0"
cat > "$folder/mixed.py" <<'PYTHON'
import functools
import logging
import os
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import advertools

NINE, TEN = "2026-11-01T09:00:00Z", "2026-11-01T10:00:00+02:00"
CASES = {
    "times": ([NINE, TEN], "datetime64"),
    "days": (["2026-11-01", "2026-11-02"], "datetime64"),
    "times and a day": ([NINE, TEN, "2026-11-02"], "text"),
    "times and a fraction": ([NINE, TEN, "2026-11-01T09:00:00.5Z"], "text"),
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


os.chdir(sys.argv[1])
logging.disable(logging.CRITICAL)
server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="."))
threading.Thread(target=server.serve_forever, daemon=True).start()
print("advertools", version("advertools"), "pandas", version("pandas"))
namespace, found = "http://www.sitemaps.org/schemas/sitemap/0.9", {}
for number, (name, (lastmods, _)) in enumerate(CASES.items()):
    entries = [f"<url><loc>https://a.example/{n}</loc><lastmod>{each}</lastmod></url>" for n, each in enumerate(lastmods)]
    with open(f"{number}.xml", "w") as file:
        file.write(f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{namespace}">{"".join(entries)}</urlset>')
    column = advertools.sitemap_to_df(f"http://127.0.0.1:{server.server_port}/{number}.xml").lastmod
    found[name] = "datetime64" if str(column.dtype).startswith("datetime64") else "text"
    print(name, column.dtype, *column, sep=" | ")
sys.exit(found != {name: kind for name, (_, kind) in CASES.items()})
PYTHON
"$folder/venv/bin/python" "$folder/mixed.py" "$folder"
