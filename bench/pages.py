"""The time and size of a page in small and large page stores."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.progress import shown
from bench.serving import FOLDER, Server, documents
from bench.tables import Table
from tbloom.pages import Page, PageStore

PACKAGE, DOCS = "python3.11-doc", Path("usr/share/doc/python3.11/html")
#: Days that a store with a window keeps, and bytes of its pages.
DAYS, BODY_BYTES = 7, 1000
PERIOD_COLUMNS = {
    "pages": ",d",
    "first put of a day (ms)": ".1f",
    "slowest of 6 (ms)": ".1f",
    "other puts (us)": ".0f",
    "get (us)": ".0f",
}
HEADERS = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "max-age=600"}


def measure(
    _server: Server,
    *,
    sizes: Sequence[int] = (10_000, 100_000),
    gets: int = 10_000,
    rounds: int = 5,
    windows: Sequence[int] = (10_000, 100_000),
) -> list[Table]:
    """Return the figures of stores with ``sizes`` pages, and of stores with a window of ``windows`` pages."""
    root = documents(PACKAGE, DOCS)
    bodies = [path.read_bytes() for path in sorted(root.rglob("*.html"))]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="pages-") as folder:
        rows = [_row(Path(folder) / f"{n}", bodies, n, gets, rounds) for n in shown(sizes, "pages")]
        periods = [_period(Path(folder) / f"d{n}", bodies, n) for n in shown(windows, "pages")]
    columns = {"pages": ",d", "put (us)": ".0f", "get (us)": ".0f", "`in` (us)": ".1f"}
    columns |= {"not there (us)": ".1f", "from the disk (us)": ".0f", "bytes a page": ",.0f"}
    return [
        Table("pages", {**columns, "of them in the index": ".0f"}, rows),
        Table("pages-periods", PERIOD_COLUMNS, periods),
    ]


def url(number: int) -> str:
    """Return the URL of the page with this number."""
    return f"https://docs.example.com/{number}.html"


def timed(call: Callable[[Any], Any], items: Sequence[Any], *, there: bool = True) -> float:
    """Return microseconds per call. Check that each finds a page, or with ``there=False`` none."""
    start = time.perf_counter()
    for item in items:
        assert bool(call(item)) is there, item
    return 1e6 * (time.perf_counter() - start) / len(items)


def drop_from_memory(folder: Path) -> None:
    """Drop the files of a folder from the system's page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _row(folder: Path, bodies: list[bytes], size: int, gets: int, rounds: int) -> list[Any]:
    """Return the times of a page in a store of this size, and its bytes on the disk, in whole blocks."""
    with PageStore(folder) as store:

        def put(number: int) -> bool:
            store.put(url(number), bodies[number % len(bodies)], headers=HEADERS)
            return True

        row: list[Any] = [size, timed(put, range(size))]
        found: list[list[float]] = []
        # The first round reads the segments, as far as they fit, into the system's page cache.
        for number in range(rounds + 1):
            drawn = random.Random(number).sample(range(size), min(size, gets))
            urls, others = [*map(url, drawn)], [url(page) + "?" for page in drawn]
            known, unknown = timed(store.__contains__, urls), timed(store.get, others, there=False)
            found.append([timed(store.get, urls), known, unknown])
        row += [median(way) for way in zip(*found[1:], strict=True)]
        drop_from_memory(folder)
        row.append(timed(store.get, urls))
        index_bytes = store.stats().index_bytes
    on_disk = sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512
    return [*row, on_disk / size, index_bytes / size]


def _period(folder: Path, bodies: list[bytes], size: int) -> list[Any]:
    """Return the times of the first put of a day, at which the pages of another day leave, of other puts, and of gets."""
    begin, day = datetime.now(UTC), timedelta(days=1)
    clock = begin
    with (
        patch("tbloom.pages.clock.now", lambda: clock),
        PageStore(folder, "d", DAYS) as store,
    ):
        pages = (
            (bodies[n % len(bodies)][:BODY_BYTES], begin - n % DAYS * day) for n in range(size)
        )
        store.put_many(Page(url(n), 200, (), body, at) for n, (body, at) in enumerate(pages))

        def put(name: str) -> bool:
            store.put(f"{url(0)}?{name}", bodies[0][:BODY_BYTES])
            return True

        drawn = random.Random(size).sample(range(size), 2000)
        others = timed(put, [f"{n}" for n in range(2000)])
        gets = timed(store.get, [*map(url, drawn)])
        firsts = []
        for number in range(DAYS - 1):
            clock += day
            firsts.append(timed(put, [f"day-{number}"]) / 1000)
            timed(put, [f"day-{number}-{n}" for n in range(500)])  # rows of the index are removed
    return [size, median(firsts), max(firsts), others, gets]
