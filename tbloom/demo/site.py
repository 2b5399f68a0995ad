"""The site that the demo crawls: its own or a folder's, its loopback server, and its true size."""

from __future__ import annotations

import contextlib
import mimetypes
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit

from scrapy.http import HtmlResponse
from w3lib.url import canonicalize_url

from tbloom.cli.kit.errors import CommandError
from tbloom.demo import gazette
from tbloom.demo.links import follow, is_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the site answers to a GET."""

    body: bytes
    content_type: str
    status: int = 200
    location: str | None = None


class Site(Protocol):
    """Something to crawl."""

    @property
    def title(self) -> str:
        """What a person calls it."""

    @property
    def start(self) -> str:
        """The path that a crawl starts at."""

    def reply(self, path: str) -> Reply:
        """The answer for a path, as it stands in a URL."""


class Gazette:
    """The demo's own site."""

    title = f"{gazette.TITLE}, the demo's own site"
    start = "/"

    def __init__(self) -> None:
        self._pages = gazette.pages()

    def reply(self, path: str) -> Reply:
        """The answer for a path."""
        text = self._pages.get(path)
        return _not_found() if text is None else Reply(text.encode(), _HTML)


class Folder:
    """The files of a folder; raises CommandError where there is no HTML in it."""

    def __init__(self, folder: str) -> None:
        self._root = Path(folder)
        if not self._root.is_dir():
            message = f"--site: there is no folder {folder}"
            raise CommandError(message)
        self.title = f"the folder {folder}"
        self.start = "/" + quote(self._first_page())

    def reply(self, path: str) -> Reply:
        """The answer for a path: the file, or for a folder its index.html."""
        parts = [part for part in unquote(path).split("/") if part]
        file = self._root.joinpath(*parts)
        try:
            if ".." in parts:
                return _not_found()
            if file.is_dir() and not path.endswith("/"):
                return Reply(b"", "text/plain", 301, f"{path}/")
            if file.is_dir():
                file /= "index.html"
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            return Reply(file.read_bytes(), kind)
        except (OSError, ValueError):  # not there, not readable, or not a name for a file
            return _not_found()

    def _first_page(self) -> str:
        if (self._root / "index.html").is_file():
            return "index.html"
        files = [path.relative_to(self._root) for path in self._root.rglob("*.htm*")]
        pages = [file for file in files if file.suffix in {".html", ".htm"}]
        if not pages:
            message = f"--site: there is no HTML page in {self._root}"
            raise CommandError(message)
        return min(pages, key=lambda page: (len(page.parts), page)).as_posix()


def _not_found() -> Reply:
    return Reply(b"not found\n", "text/plain", 404)


class Server(ThreadingHTTPServer):
    """A site on a free loopback port. It counts what it was asked for: the truth for "twice"."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, site: Site) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        """Binds without asking DNS for our name, which HTTPServer does and may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in mid-answer is no news; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def count(self, target: str) -> None:
        """Another request for this path (and query)."""
        with self._lock:
            self._hits[target] += 1

    def take_hits(self) -> Counter[str]:
        """How often each path was asked for since the last call."""
        with self._lock:
            hits, self._hits = self._hits, Counter()
            return hits


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet; in two, the client's delayed ACK costs 40 ms a page.
    wbufsize = -1
    server: Server

    def do_GET(self) -> None:
        self.server.count(self.path)
        reply = self.server.site.reply(urlsplit(self.path).path)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.location:
            self.send_header("Location", reply.location)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *_args: Any) -> None:
        """Quiet: the demo reports the numbers itself."""


@contextlib.contextmanager
def serve(site: Site) -> Iterator[Server]:
    """Serves the site from a thread for as long as the context lasts."""
    with Server(site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class Survey:
    """What a crawl of the site must come to."""

    #: The paths of the pages that links lead to from the start page.
    pages: frozenset[str]
    #: Paths that links lead to, the dead ones and those that are not pages included.
    targets: int
    #: Links on all pages, each once a page.
    links: int


def survey(site: Site, url: str, advance: Callable[[int], None]) -> Survey:
    """Follows all links from the start page, by the crawlers' rules but without the network.

    :param url: where the site is served; ``advance`` is told the number of pages so far.
    """
    pages: set[str] = set()
    count = 0
    found = [canonicalize_url(url + site.start)]
    seen = set(found)
    for address in found:  # grows as it is walked
        reply = site.reply(urlsplit(address).path)
        response = HtmlResponse(
            address,
            reply.status,
            {"Content-Type": reply.content_type},
            reply.body,
        )
        links = [urljoin(address, reply.location)] if reply.location else []
        if reply.status == 200 and is_page(response):  # noqa: PLR2004 - HTTP's "OK"
            pages.add(address.removeprefix(url))
            links = follow(response, url)
            count += len(links)
            advance(len(pages))
        new = [link for link in dict.fromkeys(links) if link not in seen]
        seen.update(new)
        found.extend(new)
    return Survey(frozenset(pages), len(found), count)
