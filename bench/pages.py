"""The time and size of a page in small and large page stores, and of imports."""

from __future__ import annotations

import gzip
import hashlib
import multiprocessing
import os
import random
import re
import tempfile
import time
from base64 import b32encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from bench.progress import shown
from bench.serving import FOLDER, Server, documents
from bench.tables import Table
from tbloom.pages import Page, PageStore, import_warc

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
IMPORT_COLUMNS = {
    "archive": "",
    "pages": ",d",
    "processor (us a page)": ".0f",
    "memory (MB)": ".0f",
}
HEADERS = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "max-age=600"}


def measure(
    _server: Server,
    *,
    sizes: Sequence[int] = (10_000, 300_000),
    gets: int = 10_000,
    rounds: int = 5,
    windows: Sequence[int] = (10_000, 100_000),
    imported: int = 10_000,
) -> list[Table]:
    """Return the figures of stores with ``sizes`` pages, of stores with a window of ``windows`` pages, and of imports."""
    root = documents(PACKAGE, DOCS)
    bodies = [path.read_bytes() for path in sorted(root.rglob("*.html"))]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="pages-") as folder:
        rows = [_row(Path(folder) / f"{n}", bodies, n, gets, rounds) for n in shown(sizes, "pages")]
        periods = [_period(Path(folder) / f"d{n}", bodies, n) for n in shown(windows, "pages")]
        imports = import_table(Path(folder), bodies, imported)
    columns = {"pages": ",d", "put (us)": ".0f", "get (us)": ".0f", "`in` (us)": ".1f"}
    columns |= {"not there (us)": ".1f", "from the disk (us)": ".0f", "bytes a page": ",.0f"}
    return [
        Table("pages", {**columns, "of them in the index": ".0f"}, rows),
        Table("pages-periods", PERIOD_COLUMNS, periods),
        imports,
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
            timed(put, [f"day-{number}-{n}" for n in range(500)])  # the bytes of files are freed
    return [size, median(firsts), max(firsts), others, gets]


def import_table(folder: Path, bodies: list[bytes], count: int) -> Table:
    """Return the processor's time and the memory of importing sound archives with a request and a response for each of ``count`` pages."""
    rows = list[list[Any]]()
    for name, compress in (("`.warc.gz`", gzip.compress), ("`.warc`", bytes)):
        archive, store = folder / "sound.warc", folder / f"imported-{len(rows)}"
        with archive.open("wb") as file:
            for number in range(count):
                for record in _records(number, bodies[number % len(bodies)]):
                    file.write(compress(record))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, memory = pool.apply(_import, (archive, store, count))
        rows.append([name, count, 1e6 * seconds / count, memory / 2**20])
        archive.unlink()
    return Table("pages-import", IMPORT_COLUMNS, rows)


def _records(number: int, body: bytes) -> Iterator[bytes]:
    """Yield the WARC records of a request and its response, with the fields that crawlers write."""
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    answer = f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    for kind, block in ("request", b"GET / HTTP/1.1\r\nHost: docs.example.com\r\n\r\n"), ("response", answer):  # fmt: skip
        digests = {"WARC-Block-Digest": _digest(block)}
        if kind == "response":
            digests["WARC-Payload-Digest"] = _digest(body)
        fields = {
            "WARC-Type": kind,
            "WARC-Record-ID": f"<urn:uuid:{uuid4()}>",
            "WARC-Target-URI": url(number),
            "WARC-Date": "2026-01-02T03:04:05Z",
            **digests,
            "Content-Type": f"application/http; msgtype={kind}",
            "Content-Length": f"{len(block)}",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        yield f"WARC/1.1\r\n{lines}\r\n".encode() + block + b"\r\n\r\n"


def _digest(data: bytes) -> str:
    return f"sha1:{b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()}"


def _import(archive: Path, folder: Path, count: int) -> tuple[float, int]:
    """Return the seconds of the processor that an import takes, and the most memory that this process had (bytes)."""
    with PageStore(folder) as store:
        start = time.process_time()
        done = import_warc(store, archive)
        seconds = time.process_time() - start
    assert (done.stored, done.skipped, done.damaged) == (count, {"request": count}, ())
    # (Not ``ru_maxrss``, which a process inherits from the one that has started it.)
    [most] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return seconds, int(most) << 10
