"""Measures what a crawl does while Redis is away, and when it is back. The pages are those of bench/sharing.py.

Each crawl has a server and a site of its own, and mostly waits, so many run at once; few of them fetch pages at a time.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any, NamedTuple

from bench.crawls import peak
from bench.fleet import CLASS, DONE, SCHEDULED, Fleet, begin, finished, ready
from bench.progress import shown
from bench.serving import Server, fresh
from bench.sharing import Asked, asked_for, generated
from bench.tables import Table

#: A mode is the way of its crawlers (bench/fleet.py) with these settings.
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    SCHEDULED: (SCHEDULED, {}),
    DONE: (DONE, {}),
    CLASS: (SCHEDULED, {"ADDONS": {}, "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}),
}
SETTINGS = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "LOG_LEVEL": "CRITICAL"}
#: How the server goes away: it is killed, and writes each change to its disk before; it is stopped; the network swallows everything.
KILLED, STOPPED, CUT = HOWS = "`kill -9`", "`SIGSTOP`", "network cut"
#: Each page takes a time between these (s).
DELAYS = 0.05, 0.1
#: So many crawls fetch pages at a time. Each goes on alone for so long after its server has gone (s).
TURNS, ALONE = 2, 8.0


class Network:
    """A proxy in front of a server, whose network can be cut: then it swallows what arrives, also on new connections, and is silent.

    Connections that have met a cut stay silent.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Swallow everything from now on."""
        self._cut.set()

    def mend(self) -> None:
        """Forward what new connections send."""
        self._cut = threading.Event()

    def close(self) -> None:
        """Accept no connection any more."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, target in ((client, server), (server, client)):
                    work = self._forward, (source, target, self._cut)
                    threading.Thread(target=work[0], args=work[1], daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):  # either end is gone
            while data := source.recv(1 << 20):
                if not cut.is_set():
                    target.sendall(data)
        if not cut.is_set():
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)


class Place(NamedTuple):
    """A server that can go away."""

    url: str
    leave: Callable[[], object]
    come_back: Callable[[], object]


class Job(NamedTuple):
    """A crawl by so many crawlers, whose server goes away like this for so long (s)."""

    mode: str
    crawlers: int
    how: str
    seconds: float


class Crawled(NamedTuple):
    """What was measured of a crawl."""

    fetched: int
    again: int
    missed: int
    reasons: str
    #: By how much the crawlers' peaks have grown while the server was away (MB); None: they have ended.
    memory: float | None
    #: Seconds from the return of the server to the next page; None: there was none.
    until_next: float | None


def measure(
    _server: Server,
    *,
    away: Sequence[float] = (10, 60, 600),
    hows: Sequence[str] = HOWS,
    pages: int = 1000,
) -> list[Table]:
    """Measure crawls of so many pages whose server is away for so long (s), and how long a SIGTERM takes meanwhile."""
    stops = [*product((SCHEDULED, DONE), hows)]
    stopped = [[*stop, _seconds_to_end(pages, *stop)] for stop in shown(stops, "crawls that end")]
    turns = threading.Semaphore(TURNS)
    jobs = [Job(mode, 1, how, seconds) for seconds, how, mode in product(away, hows, MODES)]
    jobs += [Job(DONE, 2, how, max(away)) for how in hows]
    jobs.sort(key=lambda job: -job.seconds)  # the longest first
    with ThreadPoolExecutor(len(jobs)) as pool:
        crawls = [pool.submit(_crawl, turns, pages, job) for job in jobs]
        found = dict(zip(jobs, [crawl.result() for crawl in crawls], strict=True))
    rows = [[*job, *crawled] for job, crawled in sorted(found.items(), key=_order)]
    columns = {"": "", "crawlers": "d", "how": "", "away (s)": "d", "fetched": ",d"}
    columns |= {"fetched again": ",d", "never fetched": ",d", "reason": ""}
    columns |= {"memory meanwhile (MB)": "+.1f", "until the next page (s)": ".1f"}
    table = Table("outages", columns, rows)
    return [table, Table("outages-sigterm", {"": "", "how": "", "seconds": ".1f"}, stopped)]


def _order(found: tuple[Job, Crawled]) -> Any:
    job, _ = found
    return [*MODES].index(job.mode), job.crawlers, job.seconds, HOWS.index(job.how)


@contextmanager
def _place(how: str) -> Iterator[Place]:
    """Yield a server that goes away like this."""
    with fresh("--appendonly", "yes", "--appendfsync", "always") as server:
        assert server.process
        if how == KILLED:
            yield Place(server.url, server.kill, server.restart)
        elif how == STOPPED:
            send = server.process.send_signal
            yield Place(server.url, lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT))
        else:
            network = Network(server.port)
            try:
                yield Place(network.url, network.cut, network.mend)
            finally:
                network.close()


@contextmanager
def _crawling(pages: int, mode: str, crawlers: int, how: str) -> Iterator[tuple[Place, Fleet, Any]]:
    """Yield a server, crawlers that are ready to begin, and their site."""
    way, settings = MODES[mode]
    with generated(pages, delays=DELAYS) as site, _place(how) as place:
        own: Mapping[str, Any] = {**SETTINGS, **settings}
        with ready(way, crawlers, place.url, site, settings=own) as fleet:
            yield place, fleet, site


def _crawl(turns: threading.Semaphore, pages: int, job: Job) -> Crawled:
    mode, crawlers, how, seconds = job
    turns.acquire()
    with _crawling(pages, mode, crawlers, how) as (place, fleet, site):
        try:
            _fetch(fleet, site, pages // 3)
            before = _peaks(fleet)
            place.leave()
            time.sleep(min(seconds, ALONE))
        finally:
            turns.release()
        time.sleep(max(0.0, seconds - ALONE))
        with turns:
            memory = _peaks(fleet)
            asked_for(site)  # forget these
            back = time.monotonic()
            place.come_back()
            back = time.monotonic() if how == KILLED else back  # it has loaded its data
            reported = finished(fleet)
            later: list[Asked] = asked_for(site)
    fetched = [page for report in reported for page in report["fetched"]]
    distinct = {*fetched}
    return Crawled(
        len(distinct),
        len(fetched) - len(distinct),
        len(site.reached - distinct),
        ", ".join(sorted({f"`{report['reason']}`" for report in reported})),
        None if memory is None or before is None else memory - before,
        max(0.0, later[0].at - back) if later else None,
    )


def _seconds_to_end(pages: int, mode: str, how: str) -> float:
    """Return how long a crawl takes to end after a SIGTERM, while its server is away (s)."""
    with _crawling(pages, mode, 1, how) as (place, fleet, site):
        _fetch(fleet, site, pages // 3)
        place.leave()
        time.sleep(ALONE)
        [crawler] = fleet
        crawler.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        crawler.communicate(timeout=600)
        return time.monotonic() - sent


def _fetch(fleet: Fleet, site: Any, pages: int) -> None:
    """Let the crawlers begin, and return once so many pages were asked for."""
    begin(fleet)
    asked = 0
    while asked < pages:
        time.sleep(0.05)
        asked += len(asked_for(site))


def _peaks(fleet: Fleet) -> float | None:
    """Return the sum of the crawlers' peaks (MB); None if one has ended."""
    if any(crawler.poll() is not None for crawler in fleet):
        return None
    return sum(peak(crawler.pid) for crawler in fleet)
