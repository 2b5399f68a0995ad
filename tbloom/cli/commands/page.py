"""The page of ``tbloom watch``: what it shows of a fleet and its filter, and its server, which only reads."""

from __future__ import annotations

import re
import shlex
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from heapq import nlargest
from http import HTTPStatus
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from jinja2 import Environment, PackageLoader, StrictUndefined
from redis import RedisError
from redis.exceptions import RedisClusterException

from tbloom.bloom.info import FilterInfo
from tbloom.claims.fleet import (
    FAILED,
    GIVEN_UP,
    LIVING,
    Crawler,
    Group,
    KeptPage,
    Pages,
    Where,
    grouped,
    numbers_of,
    order,
    per_minute,
)
from tbloom.claims.queues import queue_of
from tbloom.cli.commands.fleet import FleetLine, fleets_of
from tbloom.cli.commands.listing import advice, window_text
from tbloom.cli.commands.targets import Target, words_of
from tbloom.cli.kit import formats
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.cli.kit.filters import Server
from tbloom.engine.retries import as_redis_error
from tbloom.errors import TBloomError
from tbloom.version import __version__

#: So many failed pages are read at once, and so many crawlers, groups of pages, and pages are shown.
MOST_PAGES, MOST_CRAWLERS, MOST_GROUPS, MOST_NEWEST = 10_000, 200, 50, 50
#: The states whose pages are listed.
LISTED = FAILED, GIVEN_UP
#: What a query may have, and how much of it is read.
FIELDS = ("state", "reason", "host")
_LONGEST = 300
#: A connection that says nothing for so long is closed (s).
_SILENT_FOR = 10
_HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+))(?::\d+)?")
#: What a look at the server may raise. (RedisClusterException is no RedisError.)
_ERRORS = (RedisError, RedisClusterException, TBloomError, CommandError)
#: What a query asks for: values by ``FIELDS``.
Query = Mapping[str, str]
#: What is known of all fleets of a server.
Fleets = list[tuple[str, FleetLine | Exception]]


class Overview(NamedTuple):
    """What a page about all fleets of a server is about."""

    server: Server
    #: The options that name it.
    words: list[str]

    @property
    def place(self) -> str:
        """The server."""
        return self.server.place


class Look(NamedTuple):
    """What was found of a fleet at a moment."""

    info: FilterInfo
    crawlers: list[Crawler]
    pages: Pages
    #: How many pages were done in the filter.
    done: int
    #: The failed pages, or those that were read of them, each with its queue.
    kept: list[tuple[str, KeptPage]]
    #: Whether there are more.
    is_cut: bool
    queues: list[str]
    #: The server's time (s since the epoch).
    now: float


def look_at(watched: Target | Overview) -> Look | Fleets:
    """Return what the server tells."""
    if isinstance(watched, Overview):
        return [*fleets_of(watched.server)]
    seen, (views, done) = watched.seen, watched.look()
    crawlers = sorted((each for view in views for each in view.crawlers), key=order)
    pages = Pages(*map(sum, zip(*(view.pages for view in views), strict=True)))
    is_whole = watched.is_filter and watched.arguments is None
    if is_whole and (numbers := numbers_of(seen)):
        pages = numbers.pages  # with claims of other programs
    kept, is_cut = list[tuple[str, KeptPage]](), False
    for view in views:
        fleet = seen.fleet(view.queue)
        for state in LISTED if view.pages.failed or view.pages.given_up else ():
            room = min(MOST_PAGES - len(kept), MOST_PAGES // len(LISTED))
            found = [(fleet.queue, page) for page in fleet.kept([state], room + 1)]
            is_cut |= len(found) > room
            kept += found[:room]
    queues, info = [view.queue for view in views], seen.info()
    now = seen.fleet().now()
    return Look(info, crawlers, pages, done or 0, kept, is_cut, queues, now)


class Looks:
    """Looks at a fleet, which all viewers share, at most one in so many seconds."""

    def __init__(self, watched: Target | Overview, every: float) -> None:
        self.watched = watched
        self.every = every
        self._lock = threading.Lock()
        self._look: Look | Fleets | None = None
        self._error: Exception | None = None
        self._again_at = 0.0

    def page(self, query: Query) -> bytes:
        """Return the page of the newest look. Raise what the server's answer was, if it was an error."""
        with self._lock:
            look = self._newest()
        return html_of(self.watched, look, query, refresh=self.refresh)

    @property
    def refresh(self) -> int:
        """After how many seconds a browser asks again; it takes less than one for none."""
        return max(1, round(self.every))

    def _newest(self) -> Look | Fleets:
        if time.monotonic() >= self._again_at:
            self._error = None
            try:
                self._look = look_at(self.watched)
            except _ERRORS as error:
                self._error = error
            self._again_at = time.monotonic() + self.every
        if self._error is not None or self._look is None:
            raise self._error or RuntimeError
        return self._look


def html_of(
    watched: Target | Overview,
    look: Look | Fleets | None,
    query: Query | None = None,
    *,
    refresh: int = 0,
    trouble: str = "",
) -> bytes:
    """Return the page, in UTF-8.

    :param look: None: the server can't be read, because of a ``trouble``.
    :param query: which failed pages to show: their state, reason and host.
    :param refresh: the browser asks again after so many seconds; 0: never.
    """
    # Values are escaped: URLs, hosts and reasons are strangers' text. A character that turns the text around it would show another
    # command than the one that is copied.
    environment = Environment(
        loader=PackageLoader("tbloom.cli", "commands"),
        autoescape=True,
        finalize=lambda value: formats.printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    now = look.now if isinstance(look, Look) else time.time()
    environment.filters |= {
        "number": "{:,}".format,
        "size": formats.size,
        "rate": formats.rate,
        "moment": formats.moment,
        "counted": formats.counted,
        "age": lambda seconds: "" if seconds is None else formats.age(seconds),
        "since": lambda at: "" if at is None else formats.age(max(0, now - at)),
        "one_line": one_line,
        "why": lambda failed: ", ".join(f"{reason} {n:,}" for reason, n in failed.items()),
        "words": str,
        "way": list,
        "without_userinfo": formats.without_userinfo,
    }
    shown = dict[str, Any](look=None, fleets=None)
    if isinstance(watched, Overview):
        name, words = "Fleets", [*map(shlex.quote, watched.words)]
        environment.filters["way"] = lambda name: ["tbloom", "watch", shlex.quote(name), *words]
        shown["fleets"] = look
    else:
        name = watched.asked
        if watched.arguments:
            name = words_of(queue_of(name, watched.arguments))
        if isinstance(look, Look):
            known = look.queues
            environment.filters["words"] = lambda queue: words_of(queue) if queue in known else ""
            shown |= {"look": look, **_shown(watched, look, query or {})}
    html = environment.get_template("watch.html").render(
        name=name,
        place=watched.place,
        refresh=refresh,
        trouble=trouble,
        made=datetime.now(UTC),
        version=__version__,
        advice=advice,
        window_text=window_text,
        most=lambda info: max(slice.items / info.made_for(slice) for slice in info.slices),
        **shown,
    )
    return html.encode(errors="replace")  # a URL may have bytes that are no UTF-8


def _shown(watched: Target, look: Look, query: Query) -> dict[str, Any]:
    """Return what the template shows of a look."""
    where = Where(reason=query.get("reason", ""), host=query.get("host", ""))
    states = [query["state"]] if query.get("state") in LISTED else LISTED
    by_queue = defaultdict[str, list[KeptPage]](list)
    for queue, page in look.kept:
        if page.state in states and where.has(page):
            by_queue[queue].append(page)
    kept = [page for pages in by_queue.values() for page in pages]
    has_queues = len(look.queues) > 1
    groups = [(queue, group) for queue, pages in by_queue.items() for group in grouped(pages)]
    largest = nlargest(MOST_GROUPS, groups, key=lambda each: each[1].number)
    living = [each for each in look.crawlers if each.state in LIVING]
    states_of_crawlers = Counter(each.state for each in look.crawlers)
    return {
        "is_fleet": bool(look.crawlers or any(look.pages)),
        "has_queues": has_queues,
        "living": len(living),
        "states": ", ".join(f"{n:,} {state}" for state, n in states_of_crawlers.items()),
        "per_minute": per_minute(look.crawlers),
        "crawlers": look.crawlers[:MOST_CRAWLERS],
        "rows": [
            (queue, group, _retry(watched, queue if has_queues else "", group))
            for queue, group in largest
        ],
        "number_of_rows": len(groups),
        "newest": nlargest(MOST_NEWEST, kept, key=lambda page: page.failed_at or 0),
        "number": len(kept),
        "where": ", ".join(f"{field} {query[field]}" for field in FIELDS if query.get(field)),
    }


def _retry(watched: Target, queue: str, group: Group) -> list[str]:
    """Return the words, quoted for a shell, that give a group of pages to the crawlers again; none, if there are none."""
    way = watched.way(queue)
    if not (group.reason and way):
        return []
    state = "--given-up" if group.state == GIVEN_UP else "--failed"
    words = ["tbloom", "retry", *way, "--reason", group.reason, "--host", group.host, state]
    # Quoted, because it is copied into a shell, and the host is strangers' text.
    return [*map(shlex.quote, words)]


def query_of(text: str) -> dict[str, str]:
    """Return what a query asks for, of what a page can show; the rest is ignored."""
    try:
        given = parse_qs(text[: _LONGEST * 20], max_num_fields=20)
    except ValueError:
        return {}
    return {field: given[field][0][:_LONGEST] for field in FIELDS if field in given}


def is_known(host: str, names: Iterable[str]) -> bool:
    """Return whether a request's Host is an address, or one of these names.

    Any other name may be a stranger's, which leads here to let a stranger's page read this one (DNS rebinding).
    """
    if not (found := _HOST.fullmatch(host)):
        return False
    address, name = found.groups()
    try:
        ip_address(address or name)
    except ValueError:
        return bool(name) and name.lower() in names
    return True


def application(looks: Looks, names: Iterable[str]) -> Any:
    """Return the WSGI application; ``names`` are the names of this machine that a request's Host may have."""
    known = {name.lower() for name in ("localhost", *names)}

    def answer(environ: Mapping[str, Any], start: Callable[..., Any]) -> list[bytes]:
        status, kind, body, more = _answer(looks, known, environ)
        headers = [
            *_HEADERS,
            *more,
            ("Content-Type", f"text/{kind}; charset=utf-8"),
            ("Content-Length", f"{len(body)}"),
        ]
        start(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def _answer(
    looks: Looks, names: Iterable[str], environ: Mapping[str, Any]
) -> tuple[HTTPStatus, str, bytes, list[tuple[str, str]]]:
    """Return the status, the kind of text, the body, and further headers."""
    if not is_known(environ.get("HTTP_HOST", ""), names):
        text = b"Unknown host: take the address of this machine, or start tbloom watch with --allow-host NAME.\n"
        return HTTPStatus.FORBIDDEN, "plain", text, []
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        allowed = [("Allow", "GET, HEAD")]
        return HTTPStatus.METHOD_NOT_ALLOWED, "plain", b"This page is only read.\n", allowed
    if environ["PATH_INFO"] not in ("", "/"):
        return HTTPStatus.NOT_FOUND, "plain", b"There is one page: /\n", []
    try:
        html = looks.page(query_of(environ.get("QUERY_STRING", "")))
    except _ERRORS as error:
        trouble = one_line(as_redis_error(error))
        html = html_of(looks.watched, None, refresh=looks.refresh, trouble=trouble)
        return HTTPStatus.SERVICE_UNAVAILABLE, "html", html, []
    return HTTPStatus.OK, "html", html, []


class PageServer(ThreadingMixIn, WSGIServer):
    """Serves a page, each request in a thread of its own."""

    daemon_threads = True

    def __init__(self, host: str, port: int, looks: Looks, names: Iterable[str] = ()) -> None:
        self.address_family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__((str(address[0]), int(address[1])), _Quiet)
        self.set_app(application(looks, [host, *names]))

    @property
    def url(self) -> str:
        """The page's address."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away; of a bug, all."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Quiet(WSGIRequestHandler):
    timeout = _SILENT_FOR

    def log_message(self, *_: Any) -> None:
        """Log no request."""
