"""The speed of LocalBloom, in memory and in a file, compared with a set and rbloom."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import rbloom
import redis

from tbloom import LocalBloom
from tbloom.demo.localredis import LocalRedis

SLICES = 7
BATCH = 1000
ONE, MANY = "`add` one by one", f"`add_many` of {BATCH:,}"
MEMORY, FILE = "LocalBloom in memory", "LocalBloom in a file"
_DAY, _RATE = 86_400_000, 1e-4
#: Bytes of a str in a set: its slot, and an empty str.
_SLOT, _STR = 32, 49

Add = Callable[[list[str]], object]


class _Way(NamedTuple):
    name: str
    way: str
    #: Makes the contender with this number of items in each slice; returns its add.
    make: Callable[[int], Add]


def local(
    _: LocalRedis, __: redis.Redis, *, capacity: int, items: int, rounds: int
) -> dict[str, Any]:
    """Items per second, in a window that is empty and in one whose slices are half full, and bytes per item of a full one."""
    with tempfile.TemporaryDirectory() as folder:
        ways = [
            *(
                _Way(
                    name,
                    way,
                    lambda fill, where=where, many=many: _local(where, capacity, fill, many),
                )
                for name, where in ((MEMORY, None), (FILE, Path(folder)))
                for way, many in ((ONE, False), (MANY, True))
            ),
            _Way("rbloom, one filter", "`in`, `add`", lambda fill: _rbloom(capacity, fill, 1)),
            _Way(
                f"rbloom, {SLICES} filters",
                "`in`, `add`",
                lambda fill: _rbloom(capacity, fill, SLICES),
            ),
            _Way("set", "`in`, `add`", lambda fill: _set(fill * SLICES)),
        ]
        rows = [{"name": way.name, "way": way.way} for way in ways]
        for window, fill in (("empty", 0), ("half", capacity // 2)):
            adds = [way.make(fill) for way in ways]
            rates = [[_rate(add, items, number) for add in adds] for number in range(rounds)]
            for row, of_way in zip(rows, zip(*rates, strict=True), strict=True):
                row[window] = statistics.median(of_way)
    return {"capacity": capacity, "items": items, "rows": rows, "bytes": _bytes(capacity)}


def _rate(add: Add, items: int, number: int) -> float:
    """Items per second, all of them new."""
    asked = _urls(f"new {number}", items)
    start = time.perf_counter()
    add(asked)
    return items / (time.perf_counter() - start)


def _urls(kind: str, count: int) -> list[str]:
    return [f"https://www.example.com/{kind}/{number}.html" for number in range(count)]


def _local(path: Path | None, capacity: int, fill: int, many: bool) -> Add:
    if path is not None:
        path = path / f"{many} {fill}"
    seen = LocalBloom(path=path, slices=SLICES, capacity=capacity, error_rate=_RATE)
    day = 0
    seen._protocol.clock = lambda: 1_559_563_200_000 + day * _DAY
    for day in range(SLICES):
        seen.add_many(_urls(f"slice {day}", fill))

    def one_by_one(items: list[str]) -> None:
        for item in items:
            seen.add(item)

    def in_batches(items: list[str]) -> None:
        for start in range(0, len(items), BATCH):
            seen.add_many(items[start : start + BATCH])

    return in_batches if many else one_by_one


def _rbloom(capacity: int, fill: int, filters: int) -> Add:
    window = [rbloom.Bloom(capacity, _RATE / filters) for _ in range(filters)]
    for day, one in enumerate(window):
        one.update(_urls(f"slice {day}", fill))
    current = window[-1]

    def add(items: list[str]) -> None:
        for item in items:
            if not any(item in one for one in window):
                current.add(item)

    return add


def _set(fill: int) -> Add:
    known = set(_urls("old", fill))

    def add(items: Iterable[str]) -> None:
        for item in items:
            if item not in known:
                known.add(item)

    return add


def _bytes(capacity: int) -> dict[str, float]:
    """Memory per item of a slice that holds its capacity."""
    seen = LocalBloom(slices=SLICES, capacity=capacity, error_rate=_RATE)
    seen.add_many(_urls("new", capacity - 1))
    return {
        "LocalBloom": seen.info().bytes / capacity,
        f"rbloom, {SLICES} filters": rbloom.Bloom(capacity, _RATE / SLICES).size_in_bits
        / 8
        / capacity,
        "set": _SLOT + _STR + len(_urls("new", 1)[0]),
    }
