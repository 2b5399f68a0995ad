"""The site that the demo crawls, its loopback server, and the count of its pages."""

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
    """The site's response to a GET."""

    body: bytes
    content_type: str
    status: int = 200
    location: str | None = None


class Site(Protocol):
    """A site to crawl."""

    @property
    def title(self) -> str:
        """The site's name in messages."""

    @property
    def start(self) -> str:
        """The path of the start page."""

    def reply(self, path: str) -> Reply:
        """The response for a path, as quoted in a URL."""


class Gazette:
    """The demo's own site."""

    title = f"{gazette.TITLE}, the demo's own site"
    start = "/"

    def __init__(self) -> None:
        self._pages = gazette.pages()

    def reply(self, path: str) -> Reply:
        """The response for a path."""
        text = self._pages.get(path)
        return _not_found() if text is None else Reply(text.encode(), _HTML)


class Folder:
    """The files of a folder; raises CommandError where it has no HTML page."""

    def __init__(self, folder: str) -> None:
        self._root = Path(folder)
        if not self._root.is_dir():
            raise CommandError(f"--site: there is no folder {folder}")
        self.title = f"the folder {folder}"
        self.start = "/" + quote(self._first_page())

    def reply(self, path: str) -> Reply:
        """The response for a path: a file, or the index.html of a folder."""
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
        except (OSError, ValueError):  # missing, not readable, or not a file name
            return _not_found()

    def _first_page(self) -> str:
        if (self._root / "index.html").is_file():
            return "index.html"
        files = [path.relative_to(self._root) for path in self._root.rglob("*.htm*")]
        pages = [file for file in files if file.suffix in {".html", ".htm"}]
        if not pages:
            raise CommandError(f"--site: there is no HTML page in {self._root}")
        return min(pages, key=lambda page: (len(page.parts), page)).as_posix()


def _not_found() -> Reply:
    return Reply(b"not found\n", "text/plain", 404)


class Server(ThreadingHTTPServer):
    """A site on a free loopback port, which counts the requests for each path."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, site: Site) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        """Binds without HTTPServer's DNS request for this host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports errors, except those of a client that has closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def count(self, target: str) -> None:
        """Counts a request for this path and query."""
        with self._lock:
            self._hits[target] += 1

    def take_hits(self) -> Counter[str]:
        """Number of requests for each path since the last call."""
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
        """Logs nothing."""


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
    """The expected result of a crawl."""

    #: The paths of the pages that can be reached from the start page.
    pages: frozenset[str]
    #: Number of link targets, with dead links and other files.
    targets: int
    #: Number of links on all pages; a page's links to the same target count once.
    links: int


def survey(site: Site, url: str, advance: Callable[[int], None]) -> Survey:
    """Follows all links from the start page by the crawlers' rules, without the network.

    :param url: the URL of the site's server. :param advance: takes the number of pages so far.
    """
    pages: set[str] = set()
    count = 0
    found = [canonicalize_url(url + site.start)]
    seen = set(found)
    for address in found:  # the loop extends the list
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
