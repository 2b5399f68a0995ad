#!/bin/sh
# Guess: a request with "Cache-Control: max-age=0" (a browser's reload) is asked of the site, whatever is in the cache, as one
# with "no-cache" is. What comes takes the place of the stored page, so a later request without the header gets that.
# Instead, of a page with an ETag and max-age=3600 that has changed, hishel 1.4.0 gives the old version without asking.
# aiohttp-client-cache 0.15.0 (cache_control=True) fetches the new one and does not keep it: the next plain request gets the old
# one again. With "no-cache" both are right, but aiohttp-client-cache asks without If-None-Match. CacheControl 0.14.4 is right
# in all.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "hishel[httpx]==1.4.0" "httpx==0.28.1" \
    "cachecontrol==0.14.4" "requests==2.34.2" "aiohttp-client-cache==0.15.0" "aiohttp==3.14.5"
cat > "$folder/fresh.py" <<'PYTHON'
import asyncio
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import aiohttp_client_cache
import cachecontrol
import requests
from hishel.httpx import SyncCacheClient

os.chdir(sys.argv[1])
asked = []


class Site(BaseHTTPRequestHandler):
    """A page that has changed each time that somebody asks."""

    def do_GET(self):
        asked.append("conditional" if "If-None-Match" in self.headers else "plain")
        number = str(len(asked))
        self.send_response(200)
        self.send_header("ETag", f'"{number}"')
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("Content-Length", str(len(number)))
        self.end_headers()
        self.wfile.write(number.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()


def pages(get, header):
    """Return the page's number for a plain request, one with the header, and two plain ones, and how the site was asked."""
    asked.clear()
    numbers = ""
    for headers in ({}, {"Cache-Control": header}, {}, {}):
        numbers += get(f"http://127.0.0.1:{server.server_port}/{header}", headers)
        time.sleep(1.1)
    return numbers, " ".join(asked)


def texts(session):
    return lambda url, headers: session.get(url, headers=headers).text


def by_aiohttp():
    loop = asyncio.new_event_loop()

    async def make():
        return aiohttp_client_cache.CachedSession(cache=aiohttp_client_cache.CacheBackend(cache_control=True))

    async def text(url, headers):
        async with session.get(url, headers=headers) as response:
            return await response.text()

    session = loop.run_until_complete(make())
    return lambda url, headers: loop.run_until_complete(text(url, headers))


CACHES = {
    "CacheControl": texts(cachecontrol.CacheControl(requests.Session())),
    "hishel": texts(SyncCacheClient()),
    "aiohttp-client-cache": by_aiohttp(),
}
found = {}
for name, get in CACHES.items():
    for header in ("max-age=0", "no-cache"):
        found[name, header] = pages(get, header)
        print(f"{name} {version(name)}, {header}: pages {found[name, header][0]}, asked {found[name, header][1]}")
right = ("1222", "plain conditional")
expected = {
    ("CacheControl", "max-age=0"): right,
    ("CacheControl", "no-cache"): right,
    ("hishel", "max-age=0"): ("1111", "plain"),
    ("hishel", "no-cache"): right,
    ("aiohttp-client-cache", "max-age=0"): ("1211", "plain plain"),
    ("aiohttp-client-cache", "no-cache"): ("1222", "plain plain"),
}
sys.stdout.flush()
os._exit(found != expected)  # without aiohttp's words on a session that is open
PYTHON
"$folder/venv/bin/python" "$folder/fresh.py" "$folder"
