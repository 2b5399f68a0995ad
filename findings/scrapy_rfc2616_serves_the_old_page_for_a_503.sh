#!/bin/sh
# Guess: a request of Scrapy 2.19.0 with "Cache-Control: no-cache" is not answered from the cache by RFC2616Policy (so its
# documentation); so if the site answers 503, RetryMiddleware tries again, and the errback gets HttpError in the end.
# Instead: the callback gets the stored page, as 200, after one try: the cache is asked before the retries. So for each status
# from 500 on, and for a connection that breaks off. "must-revalidate" in the stored page changes the first, not the second.
# Only the flag "cached" and the stats httpcache/revalidate and httpcache/errorrecovery tell. Nor is such a request conditional:
# it has no If-None-Match, so an unchanged page is transferred whole.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "scrapy==2.19.0" "twisted==26.10.0"
cat > "$folder/old.py" <<'PYTHON'
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import scrapy
from scrapy.crawler import AsyncCrawlerProcess

PATHS = ["/503", "/503-must", "/broken", "/broken-must", "/same"]
asked, conditional, found = dict.fromkeys(PATHS, 0), [], {}


class Site(BaseHTTPRequestHandler):
    """Give each page once with an ETag, then fail."""

    def do_GET(self):
        asked[self.path] += 1
        conditional.append("If-None-Match" in self.headers)
        is_first = asked[self.path] == 1
        if "broken" in self.path and not is_first:
            self.close_connection = True
            return
        self.send_response(200 if is_first or self.path == "/same" else 503)
        self.send_header("ETag", '"1"')
        self.send_header("Cache-Control", "max-age=3600" + ", must-revalidate" * ("must" in self.path))
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"old" if is_first else b"new")

    def log_message(self, *_):
        pass


class Twice(scrapy.Spider):
    name = "twice"

    async def start(self):
        for path in PATHS:
            yield scrapy.Request(f"http://127.0.0.1:{server.server_port}{path}", self.first)

    def first(self, response):
        headers = {"Cache-Control": "no-cache"}
        yield response.request.replace(headers=headers, callback=self.second, errback=self.fail, dont_filter=True)

    def second(self, response):
        self.note(response.request, f"{response.status} {response.text} {response.flags}")

    def fail(self, failure):
        self.note(failure.request, failure.type.__name__)

    def note(self, request, answer):
        path = "/" + request.url.rsplit("/", 1)[1]
        found[path] = (answer, asked[path])


server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
settings = {
    "HTTPCACHE_ENABLED": True,
    "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy",
    "HTTPCACHE_DIR": sys.argv[1] + "/cache",
    "DOWNLOAD_DELAY": 0,
    "LOG_ENABLED": False,
}
process = AsyncCrawlerProcess(settings)
process.crawl(Twice)
process.start()
print("Scrapy", scrapy.__version__)
for path, (answer, count) in sorted(found.items()):
    print(f"{path}: {answer}, asked {count} times")
print("conditional requests:", sum(conditional))
old = "200 old ['cached']"
expected = {
    "/503": (old, 2),
    "/503-must": ("HttpError", 4),
    "/broken": (old, 2),
    "/broken-must": (old, 2),
    "/same": ("200 new []", 2),
}
sys.exit(found != expected or any(conditional))
PYTHON
"$folder/venv/bin/python" "$folder/old.py" "$folder"
