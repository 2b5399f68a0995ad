"""A website with answers of all kinds."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from tests.helpers import website

_HTML = b"<html><title>page</title>\r\n\r\n5\r\n</html>\n" * 100
_CHUNKED = ("Transfer-Encoding", "chunked")


class Answer(NamedTuple):
    """What the server sends for a path, after its Date and Server."""

    status: int
    headers: list[tuple[str, str]]
    #: Without the lengths of its chunks.
    body: bytes


def _answer(body: bytes = _HTML, *headers: tuple[str, str], status: int = 200) -> Answer:
    length = [] if _CHUNKED in headers else [("Content-Length", str(len(body)))]
    return Answer(status, [*headers, *length], body)


def answers() -> dict[str, Answer]:
    """The answer to each path."""
    noise = random.Random(5).randbytes(300_000)
    squeezed, gzipped = gzip.compress(_HTML), ("Content-Encoding", "gzip")
    return {
        "/plain": _answer(_HTML, ("Content-Type", "text/html; charset=utf-8")),
        "/empty": _answer(b""),
        "/until-close": Answer(200, [("Connection", "close")], _HTML),
        "/missing": _answer(b"not here", status=404),
        "/moved": _answer(b"see plain", ("Location", "/plain"), status=301),
        "/chunked": _answer(noise, _CHUNKED),
        "/chunked/empty": _answer(b"", _CHUNKED),
        "/chunked/gzip": _answer(squeezed, _CHUNKED, gzipped),
        "/chunked/twice": _answer(b"5\r\nhello\r\n0\r\n\r\n", _CHUNKED),
        "/gzip": _answer(squeezed, gzipped),
        "/untrue": _answer(_HTML, gzipped),
        "/headers": _answer(b"x", ("X-Latin", "M\xfcnchen \xff"), ("X-Empty", "")),
        "/repeated": _answer(b"x", ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("set-cookie", "a=1")),
        "/a-record": _answer(b"\r\n\r\nWARC/1.0\r\nWARC-Type: response\r\nContent-Length: 9\r\n\r\n"),
        "/?q=%41+b&c[]='%22": _answer(b"odd"),
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits for 40 ms

    def do_GET(self) -> None:
        status, headers, body = self.server.answers[self.path]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if _CHUNKED in headers:
            pieces = [body[at : at + 70_000] for at in range(0, len(body), 70_000)]
            body = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            body += b"0\r\nX-Trailer: 1\r\n\r\n"
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(answers: dict[str, Answer]) -> Iterator[str]:
    """The server's URL."""
    with website.served(_Handler, answers=answers) as server:
        yield server.url
