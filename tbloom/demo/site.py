"""The site that the demo crawls: a folder on a loopback server, with a record of its requests."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import IGNORED_EXTENSIONS, LinkExtractor

from tbloom.cli.kit.errors import CommandError
from tbloom.demo import gazette

if TYPE_CHECKING:
    from collections.abc import Iterator

# Files that sites link to beside pages.
_MORE_EXTENSIONS = "txt rst md py js css json xml csv inv whl gz tgz log diff patch".split()  # noqa: SIM905 - one line
# Canonical URLs, because fingerprints ignore a fragment and the order of a query.
_EXTRACTOR = LinkExtractor(
    canonicalize=True, deny_extensions=[*IGNORED_EXTENSIONS, *_MORE_EXTENSIONS]
)


def links(response: Response, site: str) -> list[str]:
    """Return the page's links within the site (``scheme://host:port``), each once; none if the response is not HTML."""
    kind = bytes(response.headers.get("Content-Type") or b"")
    if not isinstance(response, HtmlResponse) or not kind.startswith(b"text/html"):
        return []
    found = [link.url for link in _EXTRACTOR.extract_links(response)]
    return [url for url in found if url.startswith(f"{site}/")]


class Hit(NamedTuple):
    """A request to the server: its path and query, its User-Agent, and the status of the reply."""

    path: str
    agent: str
    status: int


class Server(ThreadingHTTPServer):
    """The files of a folder on a free loopback port, with a record of the requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.url: str = f"http://127.0.0.1:{self.server_port}"
        #: The requests so far.
        self.hits: list[Hit] = []
        #: The path of the page that gets a 503.
        self.failing = ""

    def server_bind(self) -> None:
        """Bind without asking DNS for this host's name, which HTTPServer does and which may take seconds."""
        TCPServer.server_bind(self)
        name, port = self.server_address[:2]
        self.server_name: str = str(name)
        self.server_port: int = port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except those of a client that has closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet; in two, the client's delayed ACK costs 40 ms a page.
    wbufsize = -1
    server: Server

    def do_GET(self) -> None:
        """Reply with a page, or with 503 for the one that fails."""
        if self.path == self.server.failing:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            super().do_GET()

    def list_directory(self, _path: Any) -> None:
        """Answer 404: a folder without an index is not a page."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_request(self, code: Any = 0, _size: Any = 0) -> None:
        """Record the request."""
        agent = self.headers["User-Agent"] or ""
        self.server.hits.append(Hit(self.path, agent, int(code)))

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serve(folder: str | None) -> Iterator[Server]:
    """Yield a server of the folder, or of the demo's own site, that runs in a thread."""
    with TemporaryDirectory(prefix="tbloom-site-") as own:
        if folder is None:
            gazette.write(Path(own))
        with Server(Path(folder or own)) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()


def first_page(folder: str | None) -> str:
    """Return the path where a crawl of the folder begins. Raise CommandError if the folder has no HTML page."""
    if folder is None:
        return "/"
    root = Path(folder)
    if not root.is_dir():
        raise CommandError(f"--site: there is no folder {folder}")
    pages = [
        path.relative_to(root) for ending in ("html", "htm") for path in root.rglob(f"*.{ending}")
    ]
    if not pages:
        raise CommandError(f"--site: there is no HTML page in {folder}")
    first = min(pages, key=lambda page: (len(page.parts), page.stem != "index", page))
    return "/" + quote(first.as_posix())


@dataclass(frozen=True, slots=True)
class Survey:
    """A site, and what a crawl of it must find."""

    server: Server
    #: The paths of the pages that links lead to from the first one, which is included.
    pages: list[str]
    #: Number of distinct URLs, dead links and other files included.
    targets: int
    #: Number of links on all pages; a page's links to the same target count once.
    links: int


def survey(server: Server, start: str) -> Survey:
    """Follow all links from the path ``start``, as the crawlers do."""
    opener = build_opener(ProxyHandler({}))
    pages: dict[str, None] = {}
    count = 0
    queue = [server.url + start]
    known = {*queue}
    for address in queue:  # the loop extends the list
        with contextlib.suppress(HTTPError), opener.open(address) as reply:
            known.add(reply.url)  # after a redirect, another URL than that of the link
            if reply.headers.get_content_type() != "text/html" or reply.url in pages:
                continue
            response = HtmlResponse(reply.url, 200, dict(reply.headers), reply.read())
            pages[reply.url.removeprefix(server.url)] = None
            found = links(response, server.url)
            count += len(found)
            queue += [link for link in found if link not in known]
            known.update(found)
    return Survey(server, [*pages], len(known), count)
