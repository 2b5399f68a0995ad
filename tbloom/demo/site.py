"""The site that the demo crawls: a folder on a loopback server, and the count of its pages."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
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

# Files that documentation and shops link to, which are never pages.
_MORE_EXTENSIONS = "txt rst md py js css json xml csv inv whl gz tgz log diff patch".split()  # noqa: SIM905 - one line
# canonicalize: the fragment is dropped and the query is sorted, as in a request's fingerprint.
_EXTRACTOR = LinkExtractor(
    canonicalize=True, deny_extensions=[*IGNORED_EXTENSIONS, *_MORE_EXTENSIONS]
)


def links(response: Response, site: str) -> list[str]:
    """The page's links within the site (``scheme://host:port``), each once; none if the response is no HTML."""
    kind = bytes(response.headers.get("Content-Type") or b"")
    if not isinstance(response, HtmlResponse) or not kind.startswith(b"text/html"):
        return []
    found = [link.url for link in _EXTRACTOR.extract_links(response)]
    return [url for url in found if url.startswith(f"{site}/")]


class Hit(NamedTuple):
    """A request to the server: its path and query, its User-Agent, and the reply's status."""

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
        #: So many crawlers must have asked before one gets a reply: so each finds work.
        self.crawlers = 0
        self.begun: set[str] = set()
        #: The path of a page that can't be fetched now.
        self.failing = ""

    def server_bind(self) -> None:
        """Binds without HTTPServer's DNS request for this host's name, which may take seconds."""
        TCPServer.server_bind(self)
        name, port = self.server_address[:2]
        self.server_name: str = str(name)
        self.server_port: int = port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports errors, except those of a client that has closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet; in two, the client's delayed ACK costs 40 ms a page.
    wbufsize = -1
    server: Server

    def do_GET(self) -> None:
        """Replies once all crawlers have begun."""
        self.server.begun.add(self.headers["User-Agent"])
        while len(self.server.begun) < self.server.crawlers:
            time.sleep(0.01)
        if self.path == self.server.failing:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            super().do_GET()

    def list_directory(self, _path: Any) -> None:
        """A folder without an index is no page."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_request(self, code: Any = 0, _size: Any = 0) -> None:
        """Takes the request down."""
        agent = self.headers["User-Agent"] or ""
        self.server.hits.append(Hit(self.path, agent, int(code)))

    def log_message(self, *_args: Any) -> None:
        """Logs nothing."""


@contextlib.contextmanager
def serve(folder: str | None) -> Iterator[Server]:
    """Serves the folder, or the demo's own site, from a thread for as long as the context lasts."""
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
    """The path where a crawl of the folder begins; raises CommandError where it has no HTML page."""
    if folder is None:
        return "/"
    root = Path(folder)
    if not root.is_dir():
        raise CommandError(f"--site: there is no folder {folder}")
    files = [path.relative_to(root) for path in root.rglob("*.htm*")]
    pages = [file for file in files if file.suffix in {".html", ".htm"}]
    if not pages:
        raise CommandError(f"--site: there is no HTML page in {folder}")
    first = min(pages, key=lambda page: (len(page.parts), page.stem != "index", page))
    return "/" + quote(first.as_posix())


@dataclass(frozen=True, slots=True)
class Survey:
    """A site, and the expected result of a crawl."""

    server: Server
    #: The paths of the pages that can be reached from the first one.
    pages: list[str]
    #: Number of link targets, with dead links and other files.
    targets: int
    #: Number of links on all pages; a page's links to the same target count once.
    links: int


def survey(server: Server, start: str) -> Survey:
    """Follows all links from the path ``start`` by the crawlers' rules."""
    opener = build_opener(ProxyHandler({}))
    pages: dict[str, None] = {}
    count = 0
    queue = [server.url + start]
    met = {*queue}
    for address in queue:  # the loop extends the list
        with contextlib.suppress(HTTPError), opener.open(address) as reply:
            # After a redirect, this is another page than that of the link.
            met.add(reply.url)
            if reply.headers.get_content_type() != "text/html" or reply.url in pages:
                continue
            response = HtmlResponse(reply.url, 200, dict(reply.headers), reply.read())
            pages[reply.url.removeprefix(server.url)] = None
            found = links(response, server.url)
            count += len(found)
            queue += [link for link in found if link not in met]
            met.update(found)
    return Survey(server, [*pages], len(met), count)
