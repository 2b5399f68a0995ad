"""Websites on this machine that count what they are asked."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.helpers.website import Server, served

_HTML = {"Content-Type": "text/html; charset=utf-8"}
_LONG = {"Cache-Control": "max-age=100000"}
_ANSWERS: dict[str, dict[str, str]] = {
    "/plain": {},
    "/max-age": _LONG,
    "/max-age?b=1&a=2": _LONG,
    "/moved-to": _LONG,
    "/stale": {"Cache-Control": "max-age=10", "Date": "old"},
    "/stale-etag": {"Cache-Control": "max-age=10", "Date": "old", "ETag": '"v1"'},
    "/etag": {"ETag": '"v1"'},
    "/changed": {"ETag": "changes"},
    "/fails-later": {"ETag": '"v1"'},
    "/fails-later-must": {"ETag": '"v1"', "Cache-Control": "must-revalidate"},
    "/cut-later": {"ETag": '"v1"'},
    "/no-store": {"Cache-Control": "no-store", "ETag": '"v1"'},
    "/no-cache": {"Cache-Control": "no-cache, max-age=1000", "ETag": '"v1"'},
    "/expires": {"Expires": "later"},
    "/expired": {"Expires": "0"},
    "/last-modified": {"Last-Modified": "Mon, 03 Jun 2019 00:00:00 GMT"},
    "/age": {**_LONG, "Age": "99999999", "Last-Modified": "Mon, 03 Jun 2019 00:00:00 GMT"},
    "/undated": {**_LONG, "Date": ""},
    "/gzip": {**_LONG, "Content-Encoding": "gzip"},
    "/chunked": {**_LONG, "Transfer-Encoding": "chunked"},
    "/json": {**_LONG, "Content-Type": "application/json"},
    "/feed.xml": {**_LONG, "Content-Type": "application/xml"},
    "/text": {**_LONG, "Content-Type": "text/plain; charset=iso-8859-1"},
    "/file.png": {**_LONG, "Content-Type": "image/png"},
    "/untyped": {**_LONG, "Content-Type": ""},
    "/odd-headers": {**_LONG, "X-Caf\xe9": "\xa0na\xefve\xff", "X-Empty": "", "X-Space": "a  b"},
    "/warned": {"ETag": '"v1"', "Warning": "199 - old"},
}
_STATUSES = {"/301": 301, "/302": 302, "/308": 308, "/404": 404, "/410": 410, "/500": 500}
#: What a spider asks such a site for.
REQUESTS: list[dict[str, Any]] = [
    *({"url": path} for path in [*_ANSWERS, *_STATUSES]),
    {"url": "/max-age?a=2&b=1"},  # the same page
    {"url": "/max-age#part"},
    {"url": "/max-age", "method": "HEAD"},
    {"url": "/max-age", "method": "POST", "body": "a"},
    {"url": "/max-age", "method": "POST", "body": "b"},
    {"url": "/max-age", "method": "POST", "body": "a"},
    {"url": "/max-age", "body": "in a GET"},
    {"url": "/gzip", "method": "HEAD"},
    {"url": "/stale", "headers": {"Cache-Control": "max-stale"}},
    {"url": "/stale", "headers": {"Cache-Control": "max-stale=5"}},
    {"url": "/max-age", "headers": {"Cache-Control": "no-cache"}},
    {"url": "/max-age", "headers": {"Cache-Control": "max-age=0"}},
    {"url": "/expires", "headers": {"Cache-Control": "no-store"}},
    {"url": "/max-age", "meta": {"dont_cache": True}},
    {"url": "/302", "meta": {"dont_redirect": True, "handle_httpstatus_list": [302]}},
]


class _Scripted(BaseHTTPRequestHandler):
    """Answers as the path says, in its own time."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in two writes would wait for the first one's acknowledgement

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, (asked, began) = self.path, (self.server.asked, self.server.began)
        asked[f"{self.command} {path}"] += 1
        number = asked[f"{self.command} {path}"]
        if path == "/cut-later" and number > 1:
            self.close_connection = True
            return
        headers = {"Date": formatdate(began, usegmt=True), **_HTML, **_ANSWERS.get(path, _LONG)}
        if headers["Date"] == "old":
            headers["Date"] = formatdate(began - 3600, usegmt=True)
        if headers.get("Expires") == "later":
            headers["Expires"] = formatdate(began + 3600, usegmt=True)
        if headers.get("ETag") == "changes":
            headers["ETag"] = f'"v{number}"'
        status = _STATUSES.get(path, 200)
        if status in (301, 302, 308):
            headers["Location"] = "/moved-to"
        if path.startswith("/fails-later") and number > 1:
            status = 500
        elif headers.get("ETag") and self.headers["If-None-Match"] == headers["ETag"]:
            status, headers = 304, {"Date": headers["Date"], "X-Checked": str(number)}
        body = b"<html><title>%s %d</title>caf\xc3\xa9</html>" % (path.encode(), number)
        self.answer(status, headers, b"" if status == 304 else body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.compress(body, mtime=0)
        self.send_response_only(status)
        for name, value in headers.items():
            if value or name.startswith("X-"):
                self.send_header(name, value)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        if "Transfer-Encoding" in headers:
            body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Folder(SimpleHTTPRequestHandler):
    """The files of a folder."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in two writes would wait for the first one's acknowledgement

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=args[-1].directory)

    def do_GET(self) -> None:
        self.server.asked[urlsplit(self.path).path] += 1
        super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(began: float) -> Iterator[Server]:
    """A site with a page for each rule of caching; ``began``: what time it is there."""
    with served(_Scripted, began=began, asked=Counter()) as server:
        yield server


@contextmanager
def folder(path: str) -> Iterator[Server]:
    """A site of the files of a folder."""
    with served(_Folder, directory=path, asked=Counter()) as server:
        yield server
