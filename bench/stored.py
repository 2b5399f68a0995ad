"""Helpers of the section on the page store: any number of real pages, and their disk use."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tbloom.pages import PageStore

#: Debian's package python3.11-doc.
DOCS = Path("/usr/share/doc/python3.11/html")
_BLOCK = 512
#: Opens a store, puts a page, and dies.
_DIES = """
import os, sys
from tbloom.pages import PageStore
store = PageStore(sys.argv[1])
store.put("https://www.example.com/last", b"the last page" * 1000)
os.kill(os.getpid(), 9)
"""


class RealPages:
    """Debian's pages, repeated under different URLs."""

    def __init__(self, limit: int | None = None) -> None:
        """At most ``limit`` of them."""
        paths = sorted(DOCS.rglob("*.html"))[:limit]
        self._names = [path.relative_to(DOCS).as_posix() for path in paths]
        self.bodies = [path.read_bytes() for path in paths]

    def url(self, number: int) -> str:
        """The address of the page of this number, from 0 on."""
        copy, page = divmod(number, len(self.bodies))
        return f"https://docs.example.com/{copy}/{self._names[page]}"

    def body(self, number: int) -> bytes:
        """The body of the page of this number."""
        return self.bodies[number % len(self.bodies)]

    def headers(self, number: int) -> dict[str, str]:
        """As a web server sends them."""
        return {
            "Date": "Tue, 04 Jun 2019 08:00:00 GMT",
            "Server": "nginx/1.22.1",
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": f"{len(self.body(number))}",
            "Last-Modified": "Mon, 03 Jun 2019 11:22:33 GMT",
            "ETag": f'"{number:x}-58a6b2c3d4e5f"',
            "Cache-Control": "max-age=600",
            "Vary": "Accept-Encoding",
        }

    def fill(self, store: PageStore, pages: Iterable[int]) -> float:
        """Puts these pages; returns the seconds."""
        start = time.perf_counter()
        for number in pages:
            store.put(self.url(number), self.body(number), headers=self.headers(number))
        return time.perf_counter() - start


def timed(ask: Callable[[Any], Any], items: Sequence[Any], expected: int) -> float:
    """Seconds per call, one after the other; the answers must add up to ``expected``."""
    start = time.perf_counter()
    total = sum(ask(item) for item in items)
    elapsed = time.perf_counter() - start
    assert expected == total, f"{total:,}, not {expected:,}"
    return elapsed / len(items)


def body_bytes(store: PageStore) -> Callable[[str], int]:
    """A function that gets a page and returns the length of its body."""
    return lambda url: len(store.get(url).body)  # type: ignore[union-attr]


def draw(rng: random.Random, pages: int, count: int) -> list[int]:
    """``count`` different pages."""
    return rng.sample(range(pages), min(pages, count))


def opening(path: Path, times: int) -> dict[str, float]:
    """Seconds to open a store to write: after ``close``, and after its writer's ``kill -9``."""
    clean = [_opened(path) for _ in range(times)]
    killed = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", _DIES, path], check=False)
        assert done.returncode == -signal.SIGKILL
        killed.append(_opened(path))
    return {"clean": median(clean), "killed": median(killed)}


def _opened(path: Path) -> float:
    start = time.perf_counter()
    store = PageStore(path)
    elapsed = time.perf_counter() - start
    store.close()
    return elapsed


def taken(folder: Path) -> dict[str, int]:
    """Disk use of a folder in whole blocks, and its numbers of files and folders."""
    found = [*folder.rglob("*")]
    return {
        "bytes": sum(path.lstat().st_blocks for path in found) * _BLOCK,
        "files": sum(path.is_file() for path in found),
        "folders": sum(path.is_dir() for path in found),
    }


def drop_from_memory(folder: Path, names: str = "*.warc.*") -> None:
    """Drops the segments, or other files, from the page cache. (They are on the disk already.)"""
    for path in folder.rglob(names):
        if not path.is_file():
            continue
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def read_once(folder: Path) -> None:
    """Reads the segments into the page cache, as far as they fit."""
    for path in folder.glob("*.warc.*"):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def remembered(folder: Path) -> int | None:
    """Bytes of the segments in the page cache; None without ``fincore``."""
    if not shutil.which("fincore"):
        return None
    paths = [*folder.glob("*.warc.*")]
    done = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", *paths],
        check=True,
        capture_output=True,
    )
    return sum(int(line) for line in done.stdout.split())
