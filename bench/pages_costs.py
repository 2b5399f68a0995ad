"""The cost of slices for a get, and of codecs and other compressors for a page."""

from __future__ import annotations

import gzip
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from isal import isal_zlib
from stored import RealPages, body_bytes, draw, timed

from tbloom.pages import Page, PageStore, calendar, members, record
from tbloom.pages.page import check_page

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
    #: To deflate, without a header; or to make a record.
    deflate: Callable[[Any], bytes]
    inflate: Callable[[bytes], Any]


def compressors(real: RealPages, *, rounds: int) -> dict[str, Any]:
    """Bytes, and seconds per body, of each compressor."""
    ours = f"ISA-L, level {members.LEVEL}"
    return {"ours": ours, **_compared(_COMPRESSORS, real.bodies, rounds)}


def codecs(real: RealPages, *, rounds: int) -> dict[str, Any]:
    """Bytes, and seconds per record, of each codec: for pages as they are, and compressed by the server."""
    plain = [_page(real, number, real.body(number), {}) for number in range(len(real.bodies))]
    packed = [
        _page(real, number, gzip.compress(real.body(number)), {"Content-Encoding": "gzip"})
        for number in range(len(real.bodies))
    ]
    return {
        "plain": _compared(_CODECS, plain, rounds),
        "packed": _compared(_CODECS, packed, rounds),
    }


def _page(real: RealPages, number: int, body: bytes, more: dict[str, str]) -> Page:
    headers = real.headers(number) | {"Content-Length": f"{len(body)}"} | more
    return check_page(real.url(number), body, _NOW, headers=headers)


def _compared(ways: Iterable[Compressor], given: list[Any], rounds: int) -> dict[str, Any]:
    rows = []
    costs: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, deflate, inflate in ways:
            start = time.perf_counter()
            made = [deflate(one) for one in given]
            middle = time.perf_counter()
            back = [inflate(data) for data in made]
            end = time.perf_counter()
            assert given == back
            costs.setdefault(name, []).append((middle - start, end - middle))
            sizes[name] = sum(map(len, made))
    for name, each in costs.items():
        deflated, inflated = (median(seconds) for seconds in zip(*each, strict=True))
        rows.append(
            {
                "name": name,
                "deflate": deflated / len(given),
                "inflate": inflated / len(given),
                "bytes": sizes[name] / len(given),
            }
        )
    return {"rounds": rounds, "rows": rows}


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


def _codec(name: str) -> Compressor:
    segment = record.new_id()
    return Compressor(name, lambda page: record.of_page(page, 1, segment, name), record.page_of)


_CODECS = [*map(_codec, members.SUFFIXES)]
_COMPRESSORS = [*map(_zlib, (1, 6, 9)), *map(_isal, range(4))]
