"""The page store: the cost of a page among many."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.links import DOCS
from bench.serving import Server
from bench.tables import Table
from tbloom.pages import PageStore

#: The stores' folder: the system's temporary folder may be in memory.
FOLDER = Path(__file__).parents[1] / "build"
HEADERS = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "max-age=600"}


def measure(
    _server: Server,
    *,
    sizes: Sequence[int] = (10_000, 300_000),
    gets: int = 10_000,
    rounds: int = 5,
) -> list[Table]:
    """Stores of ``sizes`` side by side."""
    bodies = [path.read_bytes() for path in sorted(DOCS.rglob("*.html"))]
    if not bodies:
        sys.exit(f"{DOCS} is missing: Debian's package python3.11-doc has it")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="pages-") as folder:
        return [_growth(Path(folder), bodies, sizes, gets, rounds)]


def url(number: int) -> str:
    """The address of the page of this number."""
    return f"https://docs.example.com/{number}.html"


def timed(call: Callable[[Any], Any], items: Sequence[Any], expected: int | None = None) -> float:
    """Microseconds per call, one after the other; the answers must add up to ``expected``."""
    start = time.perf_counter()
    answers = [call(item) for item in items]
    elapsed = time.perf_counter() - start
    if expected is not None:
        assert expected == sum(answers), f"{sum(answers):,}, not {expected:,}"
    return 1e6 * elapsed / len(items)


def drop_from_memory(folder: Path) -> None:
    """Drops the files of a folder from the system's page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_on_disk(folder: Path) -> int:
    """Of whole blocks, folders too."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512


def _growth(
    folder: Path, bodies: list[bytes], sizes: Sequence[int], gets: int, rounds: int
) -> Table:
    """Stores of these sizes: disk use, gets in turns, and how long reading all of each takes."""
    with ExitStack() as stack:
        stores = [stack.enter_context(PageStore(folder / f"{size}")) for size in sizes]

        def put(item: tuple[PageStore, int]) -> None:
            store, number = item
            store.put(url(number), bodies[number % len(bodies)], headers=HEADERS)

        puts = [
            timed(put, [(store, number) for number in range(size)])
            for store, size in zip(stores, sizes, strict=True)
        ]
        costs: dict[int, list[list[float]]] = {size: [] for size in sizes}
        # The first round reads the segments, as far as they fit, into the system's page cache.
        for number in range(rounds + 1):
            for store, size in zip(stores, sizes, strict=True):
                drawn = random.Random(number).sample(range(size), min(size, gets))
                length = sum(len(bodies[page % len(bodies)]) for page in drawn)
                urls, others = [*map(url, drawn)], [url(page) + "?" for page in drawn]

                def get(address: str, store: PageStore = store) -> int:
                    page = store.get(address)
                    return len(page.body) if page else 0

                found = [timed(get, urls, length), timed(store.__contains__, urls, len(urls))]
                found.append(timed(get, others, 0))
                if number == rounds:
                    drop_from_memory(Path(store.path))
                    found.append(timed(get, urls, length))
                costs[size].append(found)
    rows = []
    for size, spent in zip(sizes, puts, strict=True):
        path = folder / f"{size}"
        warm = [median(way) for way in zip(*(each[:3] for each in costs[size][1:]), strict=True)]
        with PageStore(path, readonly=True) as store:
            index_bytes = store.stats().index_bytes
        row = [size, spent, *warm, costs[size][-1][3], bytes_on_disk(path) / size]
        rows.append([*row, index_bytes / size])
    columns = {"pages": ",d", "put: us": ".0f", "get: us": ".0f", "in: us": ".1f"}
    columns |= {"not there: us": ".1f", "from the disk: us": ".0f", "bytes a page": ",.0f"}
    return Table("pages", {**columns, "of the index": ".0f"}, rows)
