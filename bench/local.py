"""The speed of LocalBloom, in memory and in a file, compared with a set and rbloom."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import rbloom

from bench.contest import BATCH, in_batches, one_by_one
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom import LocalBloom

SLICES, RATE = 7, 1e-4
#: Bytes that a set takes for a str, and an empty str itself.
SLOT, STR = 32, 49


def measure(
    _server: Server, *, capacity: int = 1_000_000, items: int = 100_000, rounds: int = 3
) -> list[Table]:
    """Return the time of a new item in a window whose slices are half full, and the bytes per item of a full one."""
    with tempfile.TemporaryDirectory() as folder:
        memory, file = (_local(path, capacity) for path in (None, Path(folder) / "file"))
        one, seven = (_rbloom(capacity, filters) for filters in (1, SLICES))
        known = {url for keep in range(SLICES) for url in _urls(keep, capacity // 2)}
        ways: dict[str, Callable[[list[str]], object]] = {
            "`LocalBloom`: `add`": one_by_one(memory.add),
            f"`LocalBloom`: `add_many` of {BATCH}": in_batches(memory.add_many),
            "in a file: `add`": one_by_one(file.add),
            f"in a file: `add_many` of {BATCH}": in_batches(file.add_many),
            "rbloom, one filter": one,
            f"rbloom, {SLICES} filters": seven,
            "set": lambda urls: [known.add(url) for url in urls if url not in known],
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for number in shown(range(rounds), "local"):
            for name, add in ways.items():
                new = _urls(f"new {number}", items)
                start = time.perf_counter()
                add(new)
                spent[name].append(1e6 * (time.perf_counter() - start) / items)
        own = memory.info().bytes / SLICES / capacity
    bits = rbloom.Bloom(capacity, RATE / SLICES).size_in_bits
    sizes = [own, own, None, None, None, bits / 8 / capacity, SLOT + STR + len(_urls(0, 1)[0])]
    times = {name: median(some) for name, some in spent.items()}
    rows = [
        [name, took / times["set"], took, size]
        for (name, took), size in zip(times.items(), sizes, strict=True)
    ]
    columns = {"": "", "x the time of a set": ".1f", "time (us)": ".2f", "bytes per item": ".1f"}
    return [Table("local", columns, rows)]


def _urls(group: object, count: int) -> list[str]:
    return [f"https://www.example.com/{group}/{number}.html" for number in range(count)]


def _local(path: Path | None, capacity: int) -> LocalBloom:
    seen = LocalBloom(path=path, slices=SLICES, capacity=capacity, error_rate=RATE)
    for keep in range(1, SLICES + 1):
        seen.add_many(_urls(keep, capacity // 2), keep=keep)
    return seen


def _rbloom(capacity: int, filters: int) -> Callable[[list[str]], object]:
    window = [rbloom.Bloom(capacity, RATE / filters) for _ in range(filters)]
    for number, bloom in enumerate(window):
        bloom.update(_urls(number, capacity // 2))

    def add(items: list[str]) -> None:
        for item in items:
            if not any(item in bloom for bloom in window):
                window[-1].add(item)

    return add
