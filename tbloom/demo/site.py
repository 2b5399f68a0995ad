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

_ARTICLES = 240
#: The lists that an article is in, of each kind of list. They have about the same length.
_LISTS = {"section": 10, "author": 13, "month": 36}
#: What a page takes (s), so that all crawlers have started before the first one is done.
_SECONDS = 0.05


def _page(title: str, links: Iterable[str]) -> bytes:
    items = "".join(f'<li><a href="/{link}">{link or "home"}</a></li>' for link in links)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{items}</ul>".encode("ascii")


def _pages() -> dict[str, bytes]:
    """Return the HTML of each page by its path."""
    articles = [f"article-{number}" for number in range(_ARTICLES)]
    members = {
        f"{kind}-{first}": articles[first::count]
        for kind, count in _LISTS.items()
        for first in range(count)
    }
    menu = ["", *(name for name in members if name.startswith("section"))]
    found = {"": [*menu, *articles[::20]]}
    found |= {name: [*menu, *listed] for name, listed in members.items()}
    for number, article in enumerate(articles):
        lists = [f"{kind}-{number % count}" for kind, count in _LISTS.items()]
        related = [articles[(number + step) % _ARTICLES] for step in (1, 7, 20, 41, 60)]
        found[article] = [*menu, *lists, *related]
    return {f"/{name}": _page(name or "The Gazette", links) for name, links in found.items()}


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
