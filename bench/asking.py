"""One process of a replay: it asks a filter about the links of page after page, from several threads or tasks.

Each thread or task has a line of pages that is known beforehand, and a file in which it records the answers. A process that is
started again goes on where the files end. So a file tells which pages were asked about, and about which one the answers died
with the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, Self

import numpy as np

from tbloom import AsyncTimeBloom, TimeBloom

#: Begins a record: when a call began (us since the epoch), and how long it took (us). A bit for each answer follows.
_HEAD = Struct("<QI")
#: In place of the duration: no call, but the start of a process.
_START = 2**32 - 1
#: Calls are sent again for so long (s), while the server is away.
_RETRY_FOR = 120
_KEY = "replay"


class Graph:
    """Pages and their links. A page and the target of a link are numbers: places in ``paths``."""

    def __init__(self, paths: Sequence[str], links: Sequence[Sequence[int]]) -> None:
        """``links`` has those of each page; paths without links may follow."""
        self.paths = [*paths]
        self._ends = np.cumsum([len(some) for some in links])
        self._links = np.concatenate([np.asarray(some, np.int64) for some in links])
        #: How many links each page has.
        self.sizes = np.diff(self._ends, prepend=0)

    def links(self, page: int) -> np.ndarray:
        """Return the targets of a page's links, in their order."""
        return self._links[self._ends[page] - self.sizes[page] : self._ends[page]]

    def save(self, file: Path) -> None:
        links = [self.links(page).tolist() for page in range(len(self.sizes))]
        file.write_text(json.dumps([self.paths, links]))

    @classmethod
    def load(cls, file: Path) -> Self:
        return cls(*json.loads(file.read_text()))


@dataclass(frozen=True)
class Plan:
    """Who asks about what, and when. It is the same for all processes."""

    #: Where ``graph.json`` and the records are, and the server's URL.
    folder: str
    url: str
    #: The host of each crawl. A crawl asks about the links of all pages; another crawl of the host asks again.
    crawls: list[int]
    #: How many processes there are, and how many threads or tasks each has.
    processes: int
    lines: int
    #: The length of a slice (s), and the number of slices.
    slice_seconds: int
    slices: int
    #: A crawl begins so many seconds after the one before; 0: at once.
    pause: float = 0
    #: Further parameters of the filter.
    parameters: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        return Graph.load(Path(self.folder, "graph.json"))

    def file(self, line: int) -> Path:
        """Return the file of a line's records. The process makes it when it is ready."""
        return Path(self.folder, f"line-{line}")

    @property
    def start(self) -> Path:
        """The file that is made when all processes are ready, which is when the crawls begin."""
        return Path(self.folder, "start")

    def pages(self, crawl: int, line: int) -> np.ndarray:
        """Return the pages of a crawl that this line asks about, in order. The lines share the pages of each crawl."""
        order = np.random.default_rng(crawl).permutation(len(self.graph.sizes))
        return order[line :: self.processes * self.lines]

    @property
    def total(self) -> int:
        """How many bytes of records there will be."""
        sizes = self.graph.sizes
        return len(self.crawls) * (_HEAD.size * len(sizes) + int(np.sum(-(-sizes // 8))))


class Record(NamedTuple):
    """The answers to the links of a page."""

    crawl: int
    page: int
    #: When the call began and ended (us since the epoch).
    before: int
    after: int
    #: A bit for each link: whether it was new. None: the process was killed, and nobody knows.
    bits: bytes | None


def records(plan: Plan, line: int) -> Iterator[Record]:
    """Yield what the line has recorded."""
    return (record for _, record in _read(plan, line) if record)


def _read(plan: Plan, line: int) -> Iterator[tuple[int, Record | None]]:
    """Yield where each record ends, and the record; None for the first start. Pass over a torn record at the end."""
    graph, data, at, end = plan.graph, plan.file(line).read_bytes(), 0, 0
    for crawl in range(len(plan.crawls)):
        for page in plan.pages(crawl, line).tolist():
            size = -(-int(graph.sizes[page]) // 8)
            while True:
                head, body = data[at : at + _HEAD.size], at + _HEAD.size
                if len(head) < _HEAD.size:
                    return
                before, took = _HEAD.unpack(head)
                if took != _START:
                    break
                # If a process was killed, its last call may have begun as soon as the one before had ended.
                yield body, Record(crawl, page, end, before, None) if at else None
                at, end = body, before
            if len(data) < body + size:
                return
            at, end = body + size, before + took
            yield at, Record(crawl, page, before, end, data[body:at])


def _now() -> int:
    return time.time_ns() // 1000


class _Line:
    """The pages of one thread or task, and the file of its records."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan, self._number = plan, number
        file = plan.file(number)
        self._done = 0
        if file.exists():
            read = [*_read(plan, number)]
            self._done = sum(bool(record and record.bits is not None) for _, record in read)
            os.truncate(file, max((end for end, _ in read), default=0))
        self._file = file.open("ab", buffering=0)
        self._file.write(_HEAD.pack(_now(), _START))
        #: Questions of this process.
        self.asked = 0

    def pages(self, began: float) -> Iterator[tuple[list[str], float]]:
        """Yield the URLs of each page's links, and for how long to wait before (s)."""
        plan, paths = self._plan, self._plan.graph.paths
        skipped = self._done
        for crawl, host in enumerate(plan.crawls):
            pages = plan.pages(crawl, self._number)
            due = began + crawl * plan.pause
            for page in pages[skipped:].tolist():
                links = plan.graph.links(page).tolist()
                wait = max(0.0, due - time.time()) if plan.pause else 0
                yield [f"https://{host}.example/{paths[link]}" for link in links], wait
            skipped = max(0, skipped - len(pages))

    def record(self, before: int, answers: Sequence[bool]) -> None:
        self.asked += len(answers)
        head = _HEAD.pack(before, _now() - before)
        # At once and unbuffered: if the process is killed, what is written stays.
        self._file.write(head + np.packbits(np.asarray(answers, bool)).tobytes())


def _ask_from_threads(seen: TimeBloom, lines: Sequence[_Line], began: float) -> None:
    def ask(line: _Line) -> None:
        for links, wait in line.pages(began):
            time.sleep(wait)
            before = _now()
            line.record(before, seen.add_many(links))

    with ThreadPoolExecutor(len(lines)) as threads:
        [*threads.map(ask, lines)]


async def _ask_from_tasks(seen: AsyncTimeBloom, lines: Sequence[_Line], began: float) -> None:
    async def ask(line: _Line) -> None:
        for links, wait in line.pages(began):
            await asyncio.sleep(wait)
            before = _now()
            line.record(before, await seen.add_many(links))

    await asyncio.gather(*map(ask, lines))


def run(plan: Plan, process: int) -> dict[str, Any]:
    """Ask until the lines end. Return the number of links, how many of them the cache has answered, and processor time (s)."""
    lines = [_Line(plan, plan.lines * process + number) for number in range(plan.lines)]
    options: dict[str, Any] = {
        "granularity": f"{plan.slice_seconds}s",
        "slices": plan.slices,
        "retry_for": _RETRY_FOR,
        "cache_size": 100_000,
        **plan.parameters,
    }
    while not plan.start.exists():
        time.sleep(0.01)
    cpu, began = time.process_time(), plan.start.stat().st_mtime
    if process % 2:
        hits = asyncio.run(_with_tasks(plan, options, lines, began))
    else:
        with TimeBloom.from_url(plan.url, _KEY, **options) as seen:
            _ask_from_threads(seen, lines, began)
            hits = seen.cache_hits
    asked = sum(line.asked for line in lines)
    return {"asked": asked, "hits": hits, "cpu": time.process_time() - cpu}


async def _with_tasks(
    plan: Plan, options: dict[str, Any], lines: Sequence[_Line], began: float
) -> int:
    async with AsyncTimeBloom.from_url(plan.url, _KEY, **options) as seen:
        await _ask_from_tasks(seen, lines, began)
        return seen.cache_hits


def command(plan: Plan, process: int) -> list[str]:
    """Return the command that runs a process and prints its report."""
    job = json.dumps([asdict(plan), process])
    return [sys.executable, "-m", "bench.asking", job]


if __name__ == "__main__":
    _plan, _process = json.loads(sys.argv[1])
    print(json.dumps(run(Plan(**_plan), _process)))
