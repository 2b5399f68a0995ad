"""Websites on this machine: one that has every page, and others that count what they are asked."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Handler(BaseHTTPRequestHandler):
    """Answers as ``get`` says, and writes no log."""

    get: Callable[[], None]

    def do_GET(self) -> None:
        self.get()

    def answer(self, status: int, body: bytes = b"", **head: object) -> None:
        """Answers with these headers, such as ``Content_Type``."""
        self.send_response(status)
        head = {"Content_Type": "text/html", "Content_Length": len(body), **head}
        for name, value in head.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Page(Handler):
    """Any page; / has links to /a and /b; /status/CODE answers with that code, /to/PATH leads to PATH, and /cut says nothing
    (/cut/once... only the first time)."""

    def do_GET(self) -> None:
        kind, _, rest = self.path[1:].partition("/")
        is_first = self.path not in self.server.seen
        self.server.seen.add(self.path)
        if kind == "cut" and (not rest.startswith("once") or is_first):
            self.close_connection = True
            return
        links = b'<a href="/a">a</a><a href="/b">b</a>' if self.path == "/" else b""
        body = b"<html><title>page</title>%s</html>" % links
        if kind == "to":
            self.answer(302, body, Location=f"/{rest}")
        else:
            self.answer(int(rest) if kind == "status" else 200, body)


class Server(ThreadingHTTPServer):
    """A server for crawlers, which open many connections at once."""

    daemon_threads = True
    #: Beyond socketserver's 5, a connection waits for a second and tries again.
    request_queue_size = 128

    def serve_forever(self, poll_interval: float = 0.02) -> None:
        """``shutdown`` waits this long, where socketserver's takes half a second."""
        super().serve_forever(poll_interval)

    def handle_error(self, *_: object) -> None:
        """A client may close a connection at any time."""


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler], **known: Any) -> Iterator[Server]:
    """A running server with its ``url``, which knows these things besides."""
    with Server(("127.0.0.1", 0), handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        for name, value in known.items():
            setattr(server, name, value)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


_LONG = {"Cache-Control": "max-age=100000"}
#: What a page's headers are besides; "old" is an hour ago.
_ANSWERS: dict[str, dict[str, str]] = {
    "/plain": {},
    "/max-age?b=1&a=2": _LONG,
    "/stale-etag": {"Cache-Control": "max-age=10", "Date": "old", "ETag": '"v1"'},
    "/cut-later": {"ETag": '"v1"'},
    "/no-store": {"Cache-Control": "no-store"},
    "/expired": {"Expires": "0", "Last-Modified": "Mon, 03 Jun 2019 00:00:00 GMT"},
    "/undated": {**_LONG, "Date": ""},
    "/gzip": {**_LONG, "Content-Encoding": "gzip"},
    "/json": {**_LONG, "Content-Type": "application/json"},
    "/text": {**_LONG, "Content-Type": "text/plain; charset=iso-8859-1"},
    "/file.png": {**_LONG, "Content-Type": "image/png"},
    "/untyped": {**_LONG, "Content-Type": ""},
    "/odd-headers": {**_LONG, "X-Caf\xe9": "\xa0na\xefve\xff", "X-Empty": "", "X-Space": "a  b"},
}
_STATUSES = {"/301": 301, "/404": 404, "/410": 410}
#: What a spider asks such a site for.
REQUESTS: list[dict[str, Any]] = [
    *({"url": path} for path in [*_ANSWERS, *_STATUSES]),
    {"url": "/max-age?a=2&b=1#part"},  # the same page
    {"url": "/plain", "method": "HEAD"},
    {"url": "/plain", "method": "POST", "body": "a"},
    {"url": "/plain", "method": "POST", "body": "b"},
    {"url": "/plain", "body": "in a GET"},
    {"url": "/json", "headers": {"Cache-Control": "no-cache"}},
    {"url": "/json", "meta": {"dont_cache": True}},
]


class _Scripted(Handler):
    """Answers as the path says, in its own time."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in two writes would wait for the first one's acknowledgement

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, began, asked = self.path, self.server.began, f"{self.command} {self.path}"
        self.server.asked[asked] += 1
        number = self.server.asked[asked]
        if path == "/cut-later" and number > 1:
            self.close_connection = True
            return
        typed = {"Content-Type": "text/html; charset=utf-8"}
        headers = {"Date": formatdate(began, usegmt=True), **typed, **_ANSWERS.get(path, _LONG)}
        if headers["Date"] == "old":
            headers["Date"] = formatdate(began - 3600, usegmt=True)
        status = _STATUSES.get(path, 200)
        if status == 301:
            headers["Location"] = "/moved-to"
        if headers.get("ETag") and self.headers["If-None-Match"] == headers["ETag"]:
            status, headers = 304, {"Date": headers["Date"], "X-Checked": str(number)}
        body = b"<html><title>%s %d</title>caf\xc3\xa9</html>" % (path.encode(), number)
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.compress(body, mtime=0)
        self.send_response_only(status)
        for name, value in headers.items():
            if value or name.startswith("X-"):
                self.send_header(name, value)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("Content-Length", "0" if status == 304 else str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_HEAD(self) -> None:
        self.do_GET()


class _Folder(SimpleHTTPRequestHandler):
    """The files of a folder."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # as above

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=args[-1].directory)

    def do_GET(self) -> None:
        self.server.asked[urlsplit(self.path).path] += 1
        super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(began: float) -> Iterator[Server]:
    """A site with pages of all kinds; ``began``: what time it is there."""
    with served(_Scripted, began=began, asked=Counter()) as server:
        yield server


@contextmanager
def folder(path: str) -> Iterator[Server]:
    """A site of the files of a folder."""
    with served(_Folder, directory=path, asked=Counter()) as server:
        yield server
