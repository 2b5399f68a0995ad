"""A website with answers of all kinds, and a part of Python's documentation."""

from __future__ import annotations

import gzip
import random
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

from tests.helpers.website import Server

_DOCS = Path("/usr/share/doc/python3.11/html")
_HTML = b"<html><title>page</title>\r\n\r\n5\r\n</html>\n" * 100


class Answer(NamedTuple):
    """What the server sends for a path, after its Date and Server."""

    status: int
    headers: list[tuple[str, str]]
    #: Without the lengths of its chunks.
    body: bytes

    @property
    def is_chunked(self) -> bool:
        return ("Transfer-Encoding", "chunked") in self.headers


def _answer(body: bytes = _HTML, *headers: tuple[str, str], status: int = 200) -> Answer:
    return Answer(status, [*headers, ("Content-Length", str(len(body)))], body)


def _chunked(body: bytes, *headers: tuple[str, str]) -> Answer:
    return Answer(200, [*headers, ("Transfer-Encoding", "chunked")], body)


def answers() -> dict[str, Answer]:
    """The answer to each path."""
    noise = random.Random(5).randbytes(300_000)
    squeezed, typed = gzip.compress(_HTML), ("Content-Type", "text/html; charset=utf-8")
    found = {
        "/plain": _answer(_HTML, typed),
        "/empty": _answer(b""),
        "/until-close": Answer(200, [typed, ("Connection", "close")], _HTML),
        "/gone": _answer(b"gone", status=410),
        "/missing": _answer(b"not here", typed, status=404),
        "/broken": _answer(b"error", status=500),
        "/moved": _answer(b"see plain", ("Location", "/plain"), status=301),
        "/moved/twice": _answer(b"", ("Location", "/moved"), status=302),
        "/chunked": _chunked(_HTML, typed),
        "/chunked/noise": _chunked(noise),
        "/chunked/empty": _chunked(b""),
        "/chunked/gzip": _chunked(squeezed, typed, ("Content-Encoding", "gzip")),
        "/chunked/twice": _chunked(b"5\r\nhello\r\n0\r\n\r\n"),
        "/gzip": _answer(squeezed, typed, ("Content-Encoding", "gzip")),
        "/deflate": _answer(zlib.compress(_HTML), ("Content-Encoding", "deflate")),
        "/brotli": _answer(b"not really", ("Content-Encoding", "br")),
        "/untrue": _answer(_HTML, ("Content-Encoding", "gzip")),
        "/noise": _answer(noise, ("Content-Type", "image/png")),
        "/bytes": _answer(bytes(range(256)) * 300),
        "/big": _answer(b"<p>paragraph</p>\n" * 100_000),
        "/headers": _answer(b"x", ("X-Latin", "M\xfcnchen \xff"), ("X-Utf", "\xc3\xa0"), ("X-Empty", "")),
        "/repeated": _answer(b"x", *(("Set-Cookie", f"{n}=\xe9") for n in range(3)), ("x-a", "1"), ("X-A", "2")),
        "/archived": _answer(b"x", ("X-Archive-Orig-Content-Encoding", "gzip")),
        "/a-record": _answer(b"\r\n\r\nWARC/1.0\r\nWARC-Type: response\r\nContent-Length: 9\r\n\r\n"),
        "/?q=%41+b&c[]='%22": _answer(b"odd"),
    }  # fmt: skip
    for path in sorted((_DOCS / "library").glob("a*.html")):
        found[f"/library/{path.name}"] = _answer(path.read_bytes(), ("Content-Type", "text/html"))
    return found


@contextmanager
def served(answers: dict[str, Answer]) -> Iterator[str]:
    """The server's URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each body waits for 40 ms

        def do_GET(self) -> None:
            status, headers, body = answer = answers[self.path]
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            if answer.is_chunked:
                cut = random.Random(len(body))
                while body:
                    piece, body = _split(body, cut.randint(1, 70_000))
                    self.wfile.write(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\nX-Trailer: 1\r\n\r\n")
            else:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(Server):
        def handle_error(self, *_: object) -> None:
            """A client may close a connection at any time."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _split(body: bytes, at: int) -> tuple[bytes, bytes]:
    return body[:at], body[at:]
