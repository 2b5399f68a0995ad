"""The requests that wait in the JOBDIR of a crawl without tbloom: ``tbloom migrate`` does not take them for done."""

from __future__ import annotations

import json
import marshal
import pickle
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.request import request_from_dict

from tbloom.errors import TBloomError
from tbloom.scrapy.hooks.downloader import make_fingerprinter

#: Files that hold no requests: of Scrapy's scheduler, of FIFO queues, and of SQLite.
_OTHERS = re.compile(r"active\.json|info\.json|.*-(?:journal|wal|shm)")
#: A file of a FIFO queue.
_CHUNK = re.compile(r"q(\d{5,})")
#: The bytes of the number in which queues write the size of a request; a LIFO queue begins with one, too.
_SIZE = 4


def stored_requests(folder: Path) -> Iterator[bytes]:
    """Yield each request in the queues on disk of Scrapy's scheduler, as it is stored. Change nothing.

    Raise TBloomError for a file that is no whole queue.
    """
    for file in sorted(folder.rglob("*")):
        if file.is_dir() or _OTHERS.fullmatch(file.name):
            continue
        try:
            yield from _in_file(file)
        except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
            raise TBloomError(
                f"{file}: expected a whole queue of Scrapy's ({error}); one whose crawl was killed may be damaged"
            ) from None


def _in_file(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        is_sqlite = opened.read(15) == b"SQLite format 3"
        if not is_sqlite:
            chunk = _CHUNK.fullmatch(file.name)
            yield from _in_chunk(opened, file, int(chunk[1])) if chunk else _backwards(opened)
            return
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
        for (stored,) in database.execute("SELECT item FROM queue"):
            yield stored


def _in_chunk(opened: BinaryIO, file: Path, number: int) -> Iterator[bytes]:
    """Yield the requests of a FIFO queue's file: first a size, then a request. What was taken out is still in it."""
    info, start = file.with_name("info.json"), 0
    if info.exists():
        first, _, offset = json.loads(info.read_text(encoding="utf-8"))["tail"]
        start = offset if first == number else 0
    opened.seek(start)
    while head := opened.read(_SIZE):
        stored = opened.read(int.from_bytes(head, "big"))
        if len(head) < _SIZE or len(stored) < int.from_bytes(head, "big"):
            raise ValueError("its end is cut off")
        yield stored


def _backwards(opened: BinaryIO) -> Iterator[bytes]:
    """Yield the requests of a LIFO queue, the last one first: behind a number, each request, and then its size."""
    end = opened.seek(0, 2)
    while end > _SIZE:
        opened.seek(end - _SIZE)
        size = int.from_bytes(opened.read(_SIZE), "big")
        end -= _SIZE + size
        if end < _SIZE:
            raise ValueError("its sizes don't add up")
        opened.seek(end)
        yield opened.read(size)


def waiting(folder: Path, settings: Settings | None) -> list[tuple[bytes, bool]]:
    """Return the fingerprint of each request that waits, and its ``dont_filter``: Scrapy's filter may not have seen it.

    This unpickles them, as Scrapy does. ``settings``: the project's, which name the fingerprinter. Raise TBloomError if a request
    can't be restored.
    """
    found, fingerprinter = list[tuple[bytes, bool]](), None
    for stored in stored_requests(folder):
        try:
            if fingerprinter is None:
                crawler = Crawler(Spider, settings)
                crawler.addons.load_settings(crawler.settings)
                fingerprinter = make_fingerprinter(crawler)
            is_pickle = stored[:1] == pickle.PROTO
            fields = pickle.loads(stored) if is_pickle else marshal.loads(stored)  # noqa: S301, S302 - the user's own
            # Without the spider, its methods can't be found.
            request = request_from_dict({**fields, "callback": None, "errback": None})
            found.append((fingerprinter.fingerprint(request), request.dont_filter))
        except Exception as error:  # noqa: BLE001 - pickles, and classes of the project, raise what they like
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise TBloomError(
                f"a request that waits in {folder} can't be restored: {why}"
            ) from None
    return found
