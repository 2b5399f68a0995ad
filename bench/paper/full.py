"""The paper's largest figure for real: three slices with 6 * 10^8 fingerprints in all, added by two processes."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import redis

from bench.contest import fingerprints
from bench.serving import Server, fresh
from bench.tables import Table, amount
from tbloom import TimeBloom

NAME, SLICES, PROCESSES, BATCH = "full", 3, 2, 5000
#: Of the items: what "at the beginning" and "at the end" mean, and as many strangers are asked for as this is of them.
_TWENTIETH, _STRANGERS = 1 / 20, 1 / 60
#: Seconds between two single adds, two looks, and two lines of progress.
_PAUSE, _LOOK, _PRINT = 0.05, 0.5, 30.0
_SLOW_US = 500


def open_filter(url: str, items: int) -> TimeBloom:
    """The filter, with room for the single adds too. By the month, so that no slice ends meanwhile."""
    per_slice = items * 1.01 / SLICES + 5000
    return TimeBloom.from_url(
        url, NAME, granularity="m", slices=SLICES, capacity=round(per_slice), cache_size=0
    )


def fill(url: str, items: int, number: int) -> int:
    """A process: adds its part of each slice's items, the oldest slice first; returns how many were new."""
    per_slice, new = items // SLICES, 0
    with redis.Redis.from_url(url) as client, open_filter(url, items) as seen:
        for keep in range(1, SLICES + 1):
            for start in range(number * BATCH, per_slice, PROCESSES * BATCH):
                some = fingerprints(f"{keep} {start}", min(BATCH, per_slice - start))
                new += sum(seen.add_many(some, keep=keep))
                client.incrby("done", len(some))
    return new


def ask(url: str, items: int, number: int) -> tuple[int, int]:
    """A process: asks for its part of the strangers; returns how many were called seen, and how many it asked for."""
    strangers, called_seen = round(items * _STRANGERS), 0
    with open_filter(url, items) as seen:
        starts = range(number * BATCH, strangers, PROCESSES * BATCH)
        for start in starts:
            called_seen += sum(seen.contains_many(fingerprints(f"other {start}", BATCH)))
    return called_seen, len(starts) * BATCH


@dataclass
class Watch:
    """What is seen of the server while it is filled."""

    items: int
    #: When so many items were added (s).
    marks: list[tuple[float, int]] = field(default_factory=list)
    #: Seconds of each single add.
    adds: list[float] = field(default_factory=list)
    #: Of one script call (us).
    longest: int = 0

    def until(self, filling: list[Future[int]], server: Server, seen: TimeBloom) -> None:
        """Adds single items, and looks at the server now and then, until all processes are done."""
        looked = printed = time.monotonic()
        server.client.config_set("slowlog-log-slower-than", _SLOW_US)
        seen.add("the first, which opens the filter")
        while not all(process.done() for process in filling):
            start = time.perf_counter()
            seen.add(f"single {len(self.adds)}")
            self.adds.append(time.perf_counter() - start)
            time.sleep(_PAUSE)
            now = time.monotonic()
            if now - looked >= _LOOK:
                looked = now
                self._look(server.client, now)
            if now - printed >= _PRINT:
                printed = now
                done = self.marks[-1][1]
                print(f"{done:,} of {self.items:,} items: {done / self.items:.1%}", flush=True)

    def _look(self, client: redis.Redis, now: float) -> None:
        self.marks.append((now, int(client.get("done") or 0)))
        calls = [call for call in client.slowlog_get(1000) if call["command"].startswith(b"EVAL")]
        client.slowlog_reset()
        self.longest = max(self.longest, *(call["duration"] for call in calls), 0)

    def rate(self, begin: float, end: float) -> str:
        """Items a second between these shares of them; empty: too few to tell."""
        within = [mark for mark in self.marks if begin < mark[1] / self.items <= end]
        if len(within) < 2:
            return ""
        (start, before), *_, (stop, after) = within
        return f"{(after - before) / (stop - start):,.0f}"


def measure(items: int) -> Table:
    """Fills the filter, asks it, and starts its server again from an RDB."""
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="tbloom-full-") as folder,
        ProcessPoolExecutor(PROCESSES, spawn) as pool,
        # It ends first, and then the processes cannot go on.
        fresh("--dir", folder) as server,
    ):
        watch, begun = Watch(items), time.monotonic()
        with open_filter(server.url, items) as seen:
            filling = [pool.submit(fill, server.url, items, n) for n in range(PROCESSES)]
            watch.until(filling, server, seen)
            minutes = (time.monotonic() - begun) / 60
            print("full; asking for strangers", flush=True)
            new = sum(process.result() for process in filling)
            asking = [pool.submit(ask, server.url, items, n) for n in range(PROCESSES)]
            called_seen, asked = map(sum, zip(*(of.result() for of in asking), strict=True))
            held, parts = seen.info().items, max(s.parts for s in seen.info().slices)
        used, process = server.bytes_of_keys(), server.client.info("memory")["used_memory"]
        started = time.monotonic()
        server.client.save()
        saved, on_disk = time.monotonic() - started, (Path(folder) / "dump.rdb").stat().st_size
        server.stop()
        started = time.monotonic()
        server.start()
        restarted = time.monotonic() - started
        with open_filter(server.url, items) as seen:
            assert held == seen.info().items
    rows = [
        ["items called new", f"{new:,}"],
        ["memory of the keys", f"{amount(used)}, {used / items:.2f} bytes an item"],
        ["memory of the server", amount(process)],
        ["parts of a slice", f"{parts}"],
        ["minutes", f"{minutes:.1f}"],
        ["items a second, first twentieth", watch.rate(0, _TWENTIETH)],
        ["items a second, last twentieth", watch.rate(1 - _TWENTIETH, 1)],
        [f"mistakes, of {asked:,} strangers", f"{called_seen / asked:.1e}"],
        ["longest script call", f"{watch.longest / 1000:.1f} ms"],
        ["p99 of a single `add` meanwhile", f"{1000 * quantiles(watch.adds, n=100)[-1]:.1f} ms"],
        ["RDB", f"{amount(on_disk)}, saved in {saved:.1f} s"],
        ["restart with it", f"{restarted:.1f} s"],
        ["load of the machine at the end", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"],
    ]
    return Table("full", {"": "", f"{items:,} items": ""}, rows)
