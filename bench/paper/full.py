"""The paper's largest figure for real: three slices with 6 * 10^8 fingerprints in all, added by two processes."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from statistics import quantiles

import redis

from bench.contest import fingerprints
from bench.serving import Server, fresh
from bench.tables import Table, amount
from tbloom import TimeBloom

NAME, SLICES, PROCESSES, BATCH = "full", 3, 2, 5000
#: Of the batches: what "at the beginning" and "at the end" mean. Of the items: as many strangers are asked for.
_TWENTIETH, _STRANGERS = 1 / 20, 1 / 60
#: Seconds between two single adds.
_PAUSE = 0.05


def open_filter(url: str, items: int) -> TimeBloom:
    """The filter, with room for the single adds too. By the month, so that no slice ends meanwhile."""
    per_slice = items * 1.01 / SLICES + 5000
    return TimeBloom.from_url(
        url, NAME, granularity="m", slices=SLICES, capacity=round(per_slice), cache_size=0
    )


def fill(url: str, items: int, number: int) -> tuple[int, list[float]]:
    """A process: adds its part of each slice's items, the oldest slice first; returns how many were new, and when each
    batch was added."""
    per_slice, new, times = items // SLICES, 0, [time.monotonic()]
    with redis.Redis.from_url(url) as client, open_filter(url, items) as seen:
        for keep in range(1, SLICES + 1):
            for start in range(number * BATCH, per_slice, PROCESSES * BATCH):
                some = fingerprints(f"{keep} {start}", min(BATCH, per_slice - start))
                new += sum(seen.add_many(some, keep=keep))
                times.append(time.monotonic())
                client.incrby("done", len(some))
    return new, times


def single_adds(filling: list[Future[tuple[int, list[float]]]], seen: TimeBloom) -> Iterator[float]:
    """Adds single items until all processes are done; yields the seconds that each took."""
    seen.add("the first, which opens the filter")
    number = 0
    while not all(process.done() for process in filling):
        start = time.perf_counter()
        seen.add(f"single {number}")
        yield time.perf_counter() - start
        time.sleep(_PAUSE)
        number += 1
        if number % 600 == 0:
            print(f"{int(seen.client.get('done') or 0):,} items added", flush=True)


def rate(times: list[list[float]], *, at_end: bool) -> str:
    """Items a second of all processes in their first batches, or their last."""
    batches = max(1, round(len(times[0]) * _TWENTIETH))
    spent = [of[-1] - of[-1 - batches] if at_end else of[batches] - of[0] for of in times]
    return f"{sum(batches * BATCH / seconds for seconds in spent):,.0f}"


def longest(server: Server) -> str:
    """The longest script call: of all commands, only these take as long."""
    events = server.client.execute_command("LATENCY", "LATEST")
    return f"{max((event[3] for event in events if event[0] == b'command'), default=0)} ms"


def measure(items: int) -> Table:
    """Fills the filter, asks it, and starts its server again from an RDB."""
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="tbloom-full-") as folder,
        ProcessPoolExecutor(PROCESSES, spawn) as pool,
        # It ends first, and then the processes cannot go on.
        fresh("--dir", folder, "--latency-monitor-threshold", "1") as server,
    ):
        begun = time.monotonic()
        with open_filter(server.url, items) as seen:
            filling = [pool.submit(fill, server.url, items, n) for n in range(PROCESSES)]
            adds = [*single_adds(filling, seen)]
            minutes, longest_call = (time.monotonic() - begun) / 60, longest(server)
            print("full; asking for strangers", flush=True)
            new, times = zip(*(process.result() for process in filling), strict=True)
            called_seen, asked = 0, round(items * _STRANGERS)
            for start in range(0, asked, BATCH):
                strangers = fingerprints(f"other {start}", min(BATCH, asked - start))
                called_seen += sum(seen.contains_many(strangers))
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
        ["items called new", f"{sum(new):,}"],
        ["memory of the keys", f"{amount(used)}, {used / items:.2f} bytes an item"],
        ["memory of the server", amount(process)],
        ["parts of a slice", f"{parts}"],
        ["minutes", f"{minutes:.1f}"],
        ["items a second, first twentieth", rate([*times], at_end=False)],
        ["items a second, last twentieth", rate([*times], at_end=True)],
        [f"mistakes, of {asked:,} strangers", f"{called_seen / asked:.1e}"],
        ["longest script call", longest_call],
        ["p99 of a single `add` meanwhile", f"{1000 * quantiles(adds, n=100)[-1]:.1f} ms"],
        ["RDB", f"{amount(on_disk)}, saved in {saved:.1f} s"],
        ["restart with it", f"{restarted:.1f} s"],
        ["load of the machine at the end", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"],
    ]
    return Table("full", {"": "", f"{items:,} items": ""}, rows)
