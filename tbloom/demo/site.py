"""The site of the demo: a local newspaper on a loopback server, which records who asks for which page.

Pages link to each other as on a news site, so nearly all links that a crawler finds are duplicates.
"""

from __future__ import annotations

import contextlib
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SECTIONS, _ARTICLES = 10, 289
#: How far behind a page those are that it links to besides the menu, which is the start page and the sections.
_STEPS = (1, 7, 13, 20, 29, 41, 60, 87, 110, 131, 150, 171, 199, 230, 262, 288)
#: What a page takes (s), so that all crawlers have started before the first one is done.
_SECONDS = 0.05


def _page(title: str, links: Iterable[str]) -> bytes:
    items = "".join(f'<li><a href="/{link}">{link or "home"}</a></li>' for link in links)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{items}</ul>".encode("ascii")


def _pages() -> dict[str, bytes]:
    """Return the HTML of each page by its path."""
    menu = ["", *(f"section-{number}" for number in range(_SECTIONS))]
    names = [*menu, *(f"article-{number}" for number in range(_ARTICLES))]
    pages = dict[str, bytes]()
    for number, name in enumerate(names):
        others = [names[(number + step) % len(names)] for step in _STEPS]
        pages[f"/{name}"] = _page(name or "The Gazette", [*menu, *others])
    return pages


PAGES = _pages()


class Site(ThreadingTCPServer):
    """The pages on a free loopback port."""

    # It is no HTTPServer, which asks DNS for this host's name: that may take seconds.
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url: str = f"http://127.0.0.1:{self.server_address[1]}"
        self.links: int = sum(page.count(b"<a ") for page in PAGES.values())
        #: The User-Agent and the path of each request.
        self.hits: list[tuple[str, str]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about crawlers that have closed their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet; in two, the client's delayed ACK costs 40 ms a page.
    wbufsize = -1
    server: Site

    def do_GET(self) -> None:
        """Reply with a page."""
        time.sleep(_SECONDS)
        self.server.hits.append((self.headers["User-Agent"], self.path))
        page = PAGES.get(self.path, b"")
        self.send_response(HTTPStatus.OK if page else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serve() -> Iterator[Site]:
    """Yield the site, which runs in a thread."""
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
