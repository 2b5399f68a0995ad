"""The cost of slices for a get, and of other compressors for a page."""

from __future__ import annotations

import random
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from isal import isal_zlib
from stored import RealPages, body_bytes, draw, timed

from tbloom.pages import PageStore, calendar, record

#: The windows of crawlers; None: no slices.
WINDOWS = (None, ("d", 7), ("d", 30), ("h", 168))
_NOW = datetime(2019, 6, 3, 12, 30, tzinfo=timezone.utc)
_PERIOD = {"h": timedelta(hours=1), "d": timedelta(days=1)}
_GETS = 2000


def sliced(folder: Path, real: RealPages, *, pages: int, rounds: int) -> dict[str, Any]:
    """Seconds per call in stores of this number of pages, in slices of equal size."""
    original_now, calendar.now = calendar.now, lambda: _NOW  # or a slice might leave
    try:
        with tempfile.TemporaryDirectory(dir=folder) as parent, ExitStack() as stack:
            stores = [
                stack.enter_context(_store(Path(parent, f"{number}"), real, window, pages))
                for number, window in enumerate(WINDOWS)
            ]
            costs = [_ask(stores, real, pages, seed) for seed in range(rounds)]
    finally:
        calendar.now = original_now
    rows = [
        {
            "slices": window[1] if window else 1,
            "granularity": window[0] if window else None,
            "get": median(get for get, _ in each),
            "miss": median(miss for _, miss in each),
        }
        for window, *each in zip(WINDOWS, *costs, strict=True)
    ]
    return {"pages": pages, "rounds": rounds, "gets": min(pages, _GETS), "rows": rows}


def _store(path: Path, real: RealPages, window: tuple[str, int] | None, pages: int) -> PageStore:
    granularity, slices = window or (None, None)
    store = PageStore(path, granularity, slices)
    for number in range(pages):
        ago = number % slices * _PERIOD[granularity] if granularity and slices else timedelta()
        store.put(real.url(number), real.body(number), headers=real.headers(number), at=_NOW - ago)
    return store


def _ask(
    stores: list[PageStore], real: RealPages, pages: int, seed: int
) -> list[tuple[float, float]]:
    drawn = draw(random.Random(seed), pages, _GETS)
    urls = [real.url(number) for number in drawn]
    length = sum(len(real.body(number)) for number in drawn)
    others = [url + "?" for url in urls]
    costs = [(0.0, 0.0)] * len(stores)
    for turn in range(len(stores)):
        number = (turn + seed) % len(stores)
        costs[number] = (
            timed(body_bytes(stores[number]), urls, length),
            timed(stores[number].__contains__, others, 0),
        )
    return costs


class Compressor(NamedTuple):
    name: str
    #: To deflate, without a header.
    deflate: Callable[[bytes], bytes]
    inflate: Callable[[bytes], bytes]


def compressors(real: RealPages, *, rounds: int) -> dict[str, Any]:
    """Bytes, and seconds per page, of each compressor."""
    ours = f"ISA-L, level {record.LEVEL}"
    rows = []
    costs: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, deflate, inflate in _COMPRESSORS:
            start = time.perf_counter()
            made = [deflate(body) for body in real.bodies]
            middle = time.perf_counter()
            back = [inflate(data) for data in made]
            end = time.perf_counter()
            assert real.bodies == back
            costs.setdefault(name, []).append((middle - start, end - middle))
            sizes[name] = sum(map(len, made))
    for name, each in costs.items():
        deflated, inflated = (median(seconds) for seconds in zip(*each, strict=True))
        rows.append(
            {
                "name": name,
                "deflate": deflated / len(real.bodies),
                "inflate": inflated / len(real.bodies),
                "bytes": sizes[name] / len(real.bodies),
            }
        )
    return {"ours": ours, "rounds": rounds, "rows": rows}


def _zlib(level: int) -> Compressor:
    def deflate(data: bytes) -> bytes:
        compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
        return compressor.compress(data) + compressor.flush()

    return Compressor(f"zlib, level {level}", deflate, lambda data: zlib.decompress(data, -15))


def _isal(level: int) -> Compressor:
    def deflate(data: bytes) -> bytes:
        compressor = isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15)
        return compressor.compress(data) + compressor.flush()

    return Compressor(
        f"ISA-L, level {level}", deflate, lambda data: isal_zlib.decompress(data, -15)
    )


_COMPRESSORS = [*map(_zlib, (1, 6, 9)), *map(_isal, range(4))]
