"""The speed of LocalBloom, in memory and in a file, compared with a set and rbloom."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import rbloom

from bench.serving import Server
from bench.tables import Table
from tbloom import LocalBloom

SLICES, BATCH = 7, 1000
_DAY, _RATE = 86_400_000, 1e-4
#: Bytes of a str in a set: its slot, and an empty str.
_SLOT, _STR = 32, 49

Add = Callable[[list[str]], object]


def measure(_server: Server, *, capacity: int, items: int, rounds: int) -> list[Table]:
    """New items per second, in a window that is empty and in one whose slices are half full, and bytes per item of a full one."""
    with tempfile.TemporaryDirectory() as folder:
        # Each makes the contender with this number of items in each slice, and returns its add.
        ways: dict[str, Callable[[int], Add]] = {
            "`LocalBloom`: `add`": partial(_local, None, capacity, 1),
            f"`LocalBloom`: `add_many` of {BATCH:,}": partial(_local, None, capacity, BATCH),
            "in a file: `add`": partial(_local, Path(folder), capacity, 1),
            f"in a file: `add_many` of {BATCH:,}": partial(_local, Path(folder), capacity, BATCH),
            "rbloom, one filter": partial(_rbloom, capacity, 1),
            f"rbloom, {SLICES} filters": partial(_rbloom, capacity, SLICES),
            "set": _set,
        }
        rates: list[list[float]] = []
        for fill in (0, capacity // 2):
            adds = [make(fill) for make in ways.values()]
            each = [[_rate(add, items, number) for add in adds] for number in range(rounds)]
            rates.append([median(of_way) for of_way in zip(*each, strict=True)])
    rows = [
        [name, empty, 1e6 / half, size]
        for name, empty, half, size in zip(ways, *rates, _bytes(capacity), strict=True)
    ]
    columns = {"": "", "empty: items/s": ",.0f", "half full: us": ".2f"}
    return [Table("local", {**columns, "bytes per item": ".1f"}, rows)]


def _rate(add: Add, items: int, number: int) -> float:
    """Items per second, all of them new."""
    asked = _urls(f"new {number}", items)
    start = time.perf_counter()
    add(asked)
    return items / (time.perf_counter() - start)


def _urls(kind: str, count: int) -> list[str]:
    return [f"https://www.example.com/{kind}/{number}.html" for number in range(count)]


def _local(folder: Path | None, capacity: int, batch: int, fill: int) -> Add:
    path = folder / f"{batch} {fill}" if folder else None
    seen = LocalBloom(path=path, slices=SLICES, capacity=capacity, error_rate=_RATE)
    day = 0
    seen._protocol.clock = lambda: 1_559_563_200_000 + day * _DAY
    for day in range(SLICES):
        seen.add_many(_urls(f"slice {day}", fill))

    def add(items: list[str]) -> None:
        if batch == 1:
            for item in items:
                seen.add(item)
        else:
            for start in range(0, len(items), batch):
                seen.add_many(items[start : start + batch])

    return add


def _rbloom(capacity: int, filters: int, fill: int) -> Add:
    window = [rbloom.Bloom(capacity, _RATE / filters) for _ in range(filters)]
    for day, bloom in enumerate(window):
        bloom.update(_urls(f"slice {day}", fill))
    current = window[-1]

    def add(items: list[str]) -> None:
        for item in items:
            if not any(item in bloom for bloom in window):
                current.add(item)

    return add


def _set(fill: int) -> Add:
    known = set(_urls("old", fill * SLICES))

    def add(items: list[str]) -> None:
        for item in items:
            if item not in known:
                known.add(item)

    return add


def _bytes(capacity: int) -> list[float | None]:
    """Memory per item of a slice that holds its capacity, of each contender."""
    seen = LocalBloom(slices=SLICES, capacity=capacity, error_rate=_RATE)
    seen.add_many(_urls("new", capacity - 1))
    local = seen.info().bytes / capacity
    filters = rbloom.Bloom(capacity, _RATE / SLICES).size_in_bits / 8 / capacity
    return [local, local, None, None, None, filters, _SLOT + _STR + len(_urls("new", 1)[0])]
