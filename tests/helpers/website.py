"""Websites on this machine; one has every page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Page(BaseHTTPRequestHandler):
    """Any page; / has links to /a and /b; /status/CODE answers with that code, /to/PATH leads to PATH, /offsite to another
    host, /self to itself once, /loop/a to /loop/b and back, and /cut says nothing (/cut/once... only the first time)."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        kind, _, rest = self.path[1:].partition("/")
        is_first = self.path not in self.server.seen
        self.server.seen.add(self.path)
        if kind == "cut" and (not rest.startswith("once") or is_first):
            self.close_connection = True
            return
        leads_to = {
            "to": f"/{rest}",
            "offsite": f"http://localhost:{self.server.server_port}/other",
            "self": self.path if is_first else None,
            "loop": "/loop/b" if rest == "a" else "/loop/a",
        }.get(kind)
        links = b'<a href="/a">a</a><a href="/b">b</a>' if self.path == "/" else b""
        body = b"<html><title>page</title>%s</html>" % links
        self.send_response(int(rest) if kind == "status" else 302 if leads_to else 200)
        if leads_to:
            self.send_header("Location", leads_to)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


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
