"""Websites on this machine, and one that has every page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers as ``get`` says, and writes no log."""

    get: Callable[[], None]

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.get()

    def answer(self, status: int, body: bytes = b"", **head: object) -> None:
        """Answers with these headers, such as ``Content_Type``."""
        self.send_response(status)
        # It closes the connection, on which Scrapy might otherwise send a POST.
        usual = {"Content_Type": "text/html", "Content_Length": len(body), "Connection": "close"}
        head = {**usual, **head}
        for name, value in head.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Page(Handler):
    """Any page; / has links to /a and /b; /status/CODE answers with that code, /to/PATH leads to PATH, and /cut says nothing
    (/cut/once... only the first time). The server counts what it is ``asked``."""

    def do_GET(self) -> None:
        kind, _, rest = self.path[1:].partition("/")
        self.server.asked[self.path] += 1
        is_first = self.server.asked[self.path] == 1
        if kind == "cut" and (not rest.startswith("once") or is_first):
            self.close_connection = True
            return
        links = b'<a href="/a">a</a><a href="/b">b</a>' if self.path == "/" else b""
        body = b"<html><title>page</title>%s</html>" % links
        if kind == "to":
            self.answer(302, body, Location=f"/{rest}")
        else:
            self.answer(int(rest) if kind == "status" else 200, body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


class Server(ThreadingHTTPServer):
    """A server for crawlers, which open many connections at once."""

    daemon_threads = True
    #: A test may hold its port between two sites.
    allow_reuse_port = True
    #: Beyond socketserver's 5, a connection waits for a second and tries again.
    request_queue_size = 128

    def serve_forever(self, poll_interval: float = 0.02) -> None:
        """``shutdown`` waits this long, where socketserver's takes half a second."""
        super().serve_forever(poll_interval)

    def handle_error(self, *_: object) -> None:
        """A client may close a connection at any time."""


@contextmanager
def served(
    handler: Callable[..., BaseHTTPRequestHandler], port: int = 0, **known: Any
) -> Iterator[Server]:
    """A running server with its ``url``, which knows these things besides; 0: on any port."""
    with Server(("127.0.0.1", port), handler) as server:
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
