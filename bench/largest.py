"""The largest window of the paper behind tbloom: three slices with 6 * 10^8 fingerprints in all, added by two processes."""

from __future__ import annotations

import multiprocessing
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

NAME, SLICES, PROCESSES, BATCH = "largest", 3, 2, 5000
#: How many items that were never added are asked for, for each item.
_ABSENT = 1 / 60
#: Seconds between two single adds.
_PAUSE = 0.05


def open_filter(url: str, items: int) -> TimeBloom:
    """Return the filter, with room for the single adds too. Its slices are months, so that none ends during the run."""
    per_slice = items * 1.01 / SLICES + 5000
    return TimeBloom.from_url(
        url, NAME, granularity="m", slices=SLICES, capacity=round(per_slice), cache_size=0
    )


def fill(url: str, items: int, number: int) -> int:
    """Add a process' share of each slice's items, oldest slice first, and return how many were new."""
    per_slice, new = items // SLICES, 0
    with redis.Redis.from_url(url) as client, open_filter(url, items) as seen:
        for keep in range(1, SLICES + 1):
            for start in range(number * BATCH, per_slice, PROCESSES * BATCH):
                some = fingerprints(f"{keep} {start}", min(BATCH, per_slice - start))
                new += sum(seen.add_many(some, keep=keep))
                client.incrby("done", len(some))
    return new


def single_adds(filling: list[Future[int]], seen: TimeBloom) -> Iterator[float]:
    """Add single items until all processes are done, and yield how long each took (s)."""
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


def longest(server: Server) -> str:
    """Return the time of the longest command. Only script calls take as long."""
    events = server.client.execute_command("LATENCY", "LATEST")
    return f"{max((event[3] for event in events if event[0] == b'command'), default=0)} ms"


def measure(_server: Server, *, items: int = 6 * 10**8) -> list[Table]:
    """Fill the filter, ask for other items, and restart its server, which is one of its own, from an RDB."""
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="tbloom-largest-") as folder,
        ProcessPoolExecutor(PROCESSES, spawn) as pool,
        # The server ends before the pool, so that the processes stop after an error here.
        fresh("--dir", folder, "--latency-monitor-threshold", "1") as server,
    ):
        begun = time.monotonic()
        with open_filter(server.url, items) as seen:
            filling = [pool.submit(fill, server.url, items, n) for n in range(PROCESSES)]
            adds = [*single_adds(filling, seen)]
            seconds, longest_call = time.monotonic() - begun, longest(server)
            print("full; asking for items that were never added", flush=True)
            new = sum(process.result() for process in filling)
            called_seen, asked = 0, round(items * _ABSENT)
            for start in range(0, asked, BATCH):
                absent = fingerprints(f"other {start}", min(BATCH, asked - start))
                called_seen += sum(seen.contains_many(absent))
            held = seen.info().items
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
        ["items a second", f"{items / seconds:,.0f}"],
        [f"false positives, of {asked:,} items never added", f"{called_seen / asked:.1e}"],
        ["longest script call", longest_call],
        ["p99 of a single `add` meanwhile", f"{1000 * quantiles(adds, n=100)[-1]:.1f} ms"],
        ["RDB", f"{amount(on_disk)}, saved in {saved:.1f} s"],
        ["restart with it", f"{restarted:.1f} s"],
    ]
    return [Table("largest", {"": "", f"{items:,} items": ""}, rows)]
