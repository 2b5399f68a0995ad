"""Replays crawls of many hosts at scale: processes ask about the links of real pages, a page's links in a call.

Each host has the pages of two of Debian's documents, and is crawled again and again, while slices of the window begin and
leave. Half of the processes use threads, half asyncio. Redis writes a log (``appendfsync everysec``) and has a replica. Meanwhile
processes, the server and the replica are killed (kill -9) and started again. In the end, bench/account.py checks every answer.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urldefrag

from scrapy.http import HtmlResponse

from bench.account import Account, account
from bench.asking import Graph, Plan, command
from bench.fleet import documents, links
from bench.progress import shown
from bench.serving import Server, fresh
from bench.tables import Table
from tests.helpers import guard

CRAWLER, SERVER, REPLICA = "crawler", "server", "replica"
#: Debian's packages, where each has its documents, and the folder that is crawled.
DOCUMENTS = {
    "openjdk-17-doc": ("usr/share/doc/openjdk-17-jre-headless/api", "java.base/"),
    "python3.11-doc": ("usr/share/doc/python3.11/html", ""),
}
#: For how long (s) a killed log of each kind may lose what it was told. Redis writes a log once it is two seconds late.
LOSES = {"everysec": 2.0, "always": 0.0}
#: The server and the replica are away for so long (s).
AWAY = 1.0
#: Seconds between two looks at the processes.
_LOOK = 0.25


class Costs(NamedTuple):
    """What the server did while it was asked, without its restarts."""

    #: Processor time (s), calls, and bytes to the log and to a replica.
    cpu: float
    calls: float
    written: float
    #: The most bytes of all keys and buffers, and the most memory of the process.
    used: int
    resident: int


class Replayed(NamedTuple):
    """A replay that has ended."""

    account: Account
    costs: Costs
    #: How often each was killed.
    kills: Counter[str]
    #: The share of answers from the local caches, and processor time of a process for a link (us): of processes that ended.
    cached: float
    cpu: float
    #: Keys that the replica has, and the server has not, or with other values, and the other way round.
    differing: list[str]


def read_graph(sites: Iterable[tuple[Path, str]]) -> Graph:
    """Return the pages below the folder of each root, and their links to others there, as often as a page has them."""
    places: dict[str, int] = {}
    found: list[list[str]] = []
    for root, folder in sites:
        files = sorted((root / folder).rglob("*.html"))
        for file in shown(files, f"links of {root.name}"):
            path = f"{root.name}/{file.relative_to(root).as_posix()}"
            places[path] = len(places)
            page = HtmlResponse(f"http://site/{path}", body=file.read_bytes(), encoding="utf-8")
            begin = f"http://site/{root.name}/{folder}"
            urls = (urldefrag(url).url for url in links(page, begin))
            found.append([url.removeprefix("http://site/") for url in urls])
    numbers = [[places.setdefault(path, len(places)) for path in some] for some in found]
    return Graph([*places], numbers)


class _Meter:
    """Adds up what a server counts in its lives."""

    def __init__(self, server: Server) -> None:
        self._server, self._sums, self._peaks = server, [0.0] * 3, [0, 0]
        self.begin()

    def begin(self) -> None:
        """Leave out what the server has counted until now: it has started."""
        self._last = self._counts()

    def look(self) -> None:
        """Add what the server has counted since the last look."""
        now = self._counts()
        grown = [after - before for after, before in zip(now, self._last, strict=True)]
        self._sums = [*map(sum, zip(self._sums, grown, strict=True))]
        self._last = now

    def costs(self) -> Costs:
        return Costs(*self._sums, *self._peaks)

    def _counts(self) -> list[float]:
        info: dict[str, Any] = self._server.client.info("everything")
        sizes = info["used_memory"], info["used_memory_rss"]
        self._peaks = [*map(max, self._peaks, sizes)]
        cpu = info["used_cpu_user"] + info["used_cpu_sys"]
        return [cpu, info["total_reads_processed"], info["master_repl_offset"]]


class _Fleet:
    """The processes that ask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._running = dict[int, subprocess.Popen[str]]()
        #: What each process that has ended printed.
        self.reports = list[dict[str, Any]]()
        self._dice = random.Random(0)

    def __enter__(self) -> Self:
        for number in range(self._plan.processes):
            self._start(number)
        lines = range(self._plan.processes * self._plan.lines)
        while self.is_at_work() and not all(self._plan.file(line).exists() for line in lines):
            time.sleep(_LOOK)
        self._plan.start.touch()
        return self

    def __exit__(self, *_: object) -> None:
        while self._running:
            self._kill(next(iter(self._running)))

    def _start(self, number: int) -> None:
        words = command(self._plan, number)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        guard.watch(process.pid)
        self._running[number] = process

    def _kill(self, number: int) -> None:
        with self._running.pop(number) as process:
            process.kill()
        guard.forget(process.pid)

    def kill_one(self) -> None:
        """Kill a process, and start it again."""
        number = self._dice.choice([*self._running])
        self._kill(number)
        self._start(number)

    def is_at_work(self) -> bool:
        """Take the reports of processes that have ended. Return whether there are others."""
        for number, process in [*self._running.items()]:
            if process.poll() is not None:
                assert process.returncode == 0, f"process {number} has failed"
                report, _ = process.communicate()
                self.reports.append(json.loads(report))
                self._kill(number)
        return bool(self._running)

    def progress(self) -> float:
        """Return the share of the answers that are recorded."""
        plan = self._plan
        lines = range(plan.processes * plan.lines)
        return sum(plan.file(line).stat().st_size for line in lines) / plan.total


def replay(
    graph: Graph,
    *,
    crawls: Sequence[int],
    processes: int,
    lines: int,
    slice_seconds: int,
    slices: int = 7,
    pause: float = 0,
    kills: Mapping[str, int],
    fsync: str = "everysec",
    **parameters: Any,
) -> Replayed:
    """Crawl these hosts, in this order, by so many processes of so many threads or tasks. Kill each kind so many times.

    The kills are spread evenly over the answers.
    """
    faults = [kind for kind, times in kills.items() for _ in range(times)]
    random.Random(0).shuffle(faults)
    step = 1 / (1 + len(faults))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tbloom-replay-"))
        graph.save(Path(folder, "graph.json"))
        server, replica = stack.enter_context(_servers(fsync))
        plan = Plan(
            folder,
            server.url,
            [*crawls],
            processes,
            lines,
            slice_seconds,
            slices,
            pause,
            parameters,
        )
        meter, killed = _Meter(server), list[int]()
        fleet = stack.enter_context(_Fleet(plan))
        while fleet.is_at_work():
            time.sleep(_LOOK)
            meter.look()
            if not faults or fleet.progress() < 1 - len(faults) * step:
                continue
            kind = faults.pop()
            if kind == CRAWLER:
                fleet.kill_one()
                continue
            struck = server if kind == SERVER else replica
            struck.kill()
            at = time.time_ns() // 1000
            time.sleep(AWAY)
            struck.restart()
            if kind == SERVER:
                killed.append(at)
                meter.begin()
        meter.look()
        differing = _differing(server, replica)
        reported = [[report[name] for name in ("asked", "hits", "cpu")] for report in fleet.reports]
        asked, hits, cpu = map(sum, zip(*reported, strict=True))
        told = account(plan, killed, LOSES[fsync])
        assert told.asked == len(crawls) * int(graph.sizes.sum()), "not all links were asked about"
        return Replayed(
            told,
            meter.costs(),
            Counter(kills) - Counter(faults),
            hits / asked,
            1e6 * cpu / asked,
            differing,
        )


@contextmanager
def _servers(fsync: str) -> Iterator[tuple[Server, Server]]:
    """Yield a server that writes a log, and its replica."""
    keeps = "--appendonly", "yes", "--appendfsync", fsync, "--repl-diskless-sync-delay", "0"
    server = fresh(*keeps)
    with server, fresh(*keeps, "--replicaof", "127.0.0.1", str(server.port)) as replica:
        yield server, replica


def _differing(server: Server, replica: Server) -> list[str]:
    """Return the keys that the two do not both have with the same value, once the replica has received all changes."""
    deadline = time.monotonic() + 60
    while not server.client.wait(1, 1000):
        assert time.monotonic() < deadline, "the replica does not follow"
    keys: list[bytes] = []
    for _ in range(3):  # a slice may leave between the two looks
        one, other = _contents(server), _contents(replica)
        keys = [key for key in one.keys() | other if one.get(key) != other.get(key)]
        if not keys:
            break
    return sorted(map(repr, keys))


def _contents(server: Server) -> dict[bytes, Any]:
    """Return the value of each key."""
    client, values = server.client, dict[bytes, Any]()
    for key in client.scan_iter(count=1000):
        is_hash = client.type(key) == b"hash"
        values[key] = client.hgetall(key) if is_hash else client.get(key)
    return {key: value for key, value in values.items() if value}


def measure(
    _server: Server,
    *,
    links: int = 10**7,
    packages: Sequence[str] = (*DOCUMENTS,),
    folder: str | None = None,
    slice_seconds: int = 10,
) -> list[Table]:
    """Replay about so many links by eight processes. If ``folder`` is given, it is crawled in place of those in ``DOCUMENTS``."""
    sites = [
        (documents(package, Path(docs)), folder or usual)
        for package, (docs, usual) in DOCUMENTS.items()
        if package in packages
    ]
    graph = read_graph(sites)
    number, dice = max(4, links // int(sum(graph.sizes))), random.Random(0)
    # Each host is crawled four times, by chance more or less often.
    crawls = [dice.randrange(number // 4) for _ in range(number)]
    replayed = replay(
        graph,
        crawls=crawls,
        processes=8,
        lines=4,
        slice_seconds=slice_seconds,
        kills={CRAWLER: 8, SERVER: 4, REPLICA: 4},
    )
    return _tables(replayed, crawls, slice_seconds)


def _tables(of: Replayed, crawls: Sequence[int], slice_seconds: int) -> list[Table]:
    told, costs, seconds = of.account, of.costs, of.account.seconds
    per_second = told.asked / seconds
    hosts, slices = len({*crawls}), seconds / slice_seconds
    kills = [of.kills[kind] for kind in (CRAWLER, SERVER, REPLICA)]
    run = Table(
        "replay",
        {
            "links": ",d",
            "hosts": ",d",
            "crawls": ",d",
            "minutes": ".1f",
            "slices": ".0f",
            "crawlers killed": "d",
            "server killed": "d",
            "replica killed": "d",
        },
        [[told.asked, hosts, len(crawls), seconds / 60, slices, *kills]],
    )
    wrong = Table(
        "replay-account",
        {
            "new": ",d",
            "% seen": ".1f",
            "new twice": ",d",
            "lost with the log": ",d",
            "answers that died": ",d",
            "false positives": ".1e",
            "keys that differ on the replica": "d",
        },
        [
            [
                told.new,
                100 * (1 - told.new / told.asked),
                told.twice,
                told.lost,
                told.died,
                told.rate,
                len(of.differing),
            ]
        ],
    )
    paid = Table(
        "replay-costs",
        {
            "links/s": ",.0f",
            "% from the cache": ".0f",
            "calls/s": ",.0f",
            "server us per link": ".2f",
            "bytes logged per link": ".2f",
            "GB logged a day": ".1f",
            "MB of data": ".1f",
            "MB of the server": ".0f",
            "client us per link": ".1f",
        },
        [
            [
                per_second,
                100 * of.cached,
                costs.calls / seconds,
                1e6 * costs.cpu / told.asked,
                costs.written / told.asked,
                costs.written / seconds * 86_400 / 1e9,
                costs.used / 1e6,
                costs.resident / 1e6,
                of.cpu,
            ]
        ],
    )
    return [run, wrong, paid]
