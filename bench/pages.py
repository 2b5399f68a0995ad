"""The page store: the cost of a page among many, compared with Scrapy's cache storages, and other costs."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import redis
from pages_costs import codecs, compressors, sliced
from pages_peers import peers
from stored import (
    RealPages,
    body_bytes,
    draw,
    drop_from_memory,
    opening,
    read_once,
    remembered,
    taken,
    timed,
)

from tbloom.demo.localredis import LocalRedis
from tbloom.pages import PageStore

#: The stores' folder: the system's temporary folder may be in memory.
FOLDER = Path(__file__).parents[1] / "build"


def pages(_: LocalRedis, __: redis.Redis, **amounts: Any) -> dict[str, Any]:
    """The whole section; ``amounts`` as of ``measure``."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="pages-") as folder:
        return measure(Path(folder), RealPages(), **amounts)


def measure(
    folder: Path,
    real: RealPages,
    *,
    sizes: list[int],
    gets: int,
    rounds: int,
    looked_through: int,
    cached: int,
    cached_rounds: int,
    sliced_pages: int,
) -> dict[str, Any]:
    """Stores of ``sizes`` side by side; that of ``looked_through`` is read from end to end; ``cached`` pages as Scrapy stores them."""
    return {
        "bodies": len(real.bodies),
        "body_bytes": sum(map(len, real.bodies)) / len(real.bodies),
        "compressors": compressors(real, rounds=cached_rounds),
        "codecs": codecs(real, rounds=cached_rounds),
        "sliced": sliced(folder, real, pages=sliced_pages, rounds=cached_rounds),
        "peers": peers(folder, real, pages=cached, rounds=cached_rounds),
        # Last: files of the others would take space in the system's page cache.
        "growth": growth(folder, real, sizes, gets=gets, rounds=rounds),
        "through": through(folder / f"{looked_through}"),
    }


def growth(
    folder: Path, real: RealPages, sizes: list[int], *, gets: int, rounds: int
) -> dict[str, Any]:
    """Stores of these sizes, the smallest first: disk use, and gets in turns."""
    rows = []
    with ExitStack() as stack:
        stores = [stack.enter_context(PageStore(folder / f"{size}")) for size in sizes]
        for store, size in zip(stores, sizes, strict=True):
            put = real.fill(store, range(size)) / size
            store.flush()
            info = store.stats()
            rows.append(
                {
                    "pages": size,
                    "put": put,
                    "bytes": info.bytes,
                    "index_bytes": info.index_bytes,
                    "segments": info.segments,
                }
            )
        for row, store in zip(rows, stores, strict=True):
            read_once(Path(store.path))
            row["remembered"] = remembered(Path(store.path))
        asked = [_ask(stores, sizes, real, gets=gets, seed=seed) for seed in range(rounds)]
        for row, *costs in zip(rows, *asked, strict=True):
            row |= {way: median(cost[way] for cost in costs) for way in costs[0]}
            row["ratio"] = median(
                cost["get"] / costs_of_all[0]["get"]
                for cost, costs_of_all in zip(costs, asked, strict=True)
            )
        for row, store in zip(rows, stores, strict=True):
            row["cold"] = _cold(store, real, row["pages"])
    for row, size in zip(rows, sizes, strict=True):
        row["opening"] = opening(folder / f"{size}", 5)
        row["disk_bytes"] = taken(folder / f"{size}")["bytes"]
    return {"gets": gets, "rounds": rounds, "rows": rows}


def _ask(
    stores: Sequence[PageStore], sizes: Sequence[int], real: RealPages, *, gets: int, seed: int
) -> list[dict[str, float]]:
    """Seconds per call of each store; the first one changes from round to round."""
    rng, costs = random.Random(seed), [dict[str, float]() for _ in stores]
    turns = [(number + seed) % len(stores) for number in range(len(stores))]
    for number in turns:
        store, drawn = stores[number], draw(rng, sizes[number], gets)
        urls = [real.url(page) for page in drawn]
        length = sum(len(real.body(page)) for page in drawn)
        others = [url + "?" for url in urls]
        costs[number] = {
            "get": timed(body_bytes(store), urls, length),
            "in": timed(store.__contains__, urls, len(urls)),
            "not_in": timed(store.__contains__, others, 0),
            "miss": timed(lambda url, store=store: store.get(url) is not None, others, 0),
        }
    return costs


def _cold(store: PageStore, real: RealPages, pages: int) -> float:
    """Seconds per get, of pages read from the disk."""
    drawn = draw(random.Random("cold"), pages, 1000)
    drop_from_memory(Path(store.path))
    length = sum(len(real.body(page)) for page in drawn)
    return timed(body_bytes(store), [real.url(page) for page in drawn], length)


def through(path: Path) -> dict[str, Any]:
    """Seconds to rebuild an index, and to verify a store, in one process and in two."""
    rows = []
    for jobs in (1, 2):
        drop_from_memory(path)
        start = time.perf_counter()
        info = PageStore.rebuild(path, jobs=jobs)
        rebuild = time.perf_counter() - start
        drop_from_memory(path)
        with PageStore(path, readonly=True) as store:
            start = time.perf_counter()
            report = store.verify(jobs=jobs)
            verify = time.perf_counter() - start
        assert (info.pages, ()) == (report.pages, report.problems)
        rows.append({"jobs": jobs, "rebuild": rebuild, "verify": verify})
    return {
        "pages": info.pages,
        "bytes": info.bytes - info.index_bytes,
        "index_bytes": info.index_bytes,
        "rows": rows,
    }
