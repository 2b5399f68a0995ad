"""What a project brings along that moves to tbloom: scrapy-redis' queue and fingerprints, and the requests that wait in a JOBDIR.

``tbloom push --from-scrapy-redis`` moves the queue to the left pages of a spider. ``tbloom migrate`` does not take for done what waits in
the JOBDIR of a crawl without tbloom.
"""

from __future__ import annotations

import json
import marshal
import pickle
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.request import request_from_dict

from tbloom.engine.flow import text
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.hooks.engine import make_fingerprinter
from tbloom.scrapy.options import make_client, server_settings, why

_KEY, _SERIALIZER = "SCHEDULER_QUEUE_KEY", "SCHEDULER_SERIALIZER"
#: Files that hold no requests: of Scrapy's scheduler, of FIFO queues, and of SQLite.
_OTHERS = re.compile(r"active\.json|info\.json|.*-(?:journal|wal|shm)")
#: A file of a FIFO queue.
_CHUNK = re.compile(r"q(\d{5,})")
#: The bytes of the number in which queues write the size of a request; a LIFO queue begins with one, too.
_SIZE = 4


# scrapy-redis


class ScrapyRedisFingerprinter:
    """scrapy-redis' fingerprints: ``REQUEST_FINGERPRINTER_CLASS = "tbloom.scrapy.ScrapyRedisFingerprinter"``.

    scrapy-redis' dupefilter (from 0.8 on) does not use Scrapy's fingerprinter. Only these fingerprints
    find what its set holds.
    """

    __module__ = "tbloom.scrapy"

    def __init__(self) -> None:
        from scrapy_redis.dupefilter import RFPDupeFilter  # noqa: PLC0415 - only these crawls need it

        self._theirs = RFPDupeFilter(server=None, key="")

    def fingerprint(self, request: Request) -> bytes:
        """Return scrapy-redis' fingerprint as bytes."""
        return bytes.fromhex(self._theirs.request_fingerprint(request))


class OldQueue(NamedTuple):
    """A key with requests, of any of scrapy-redis' classes of queues."""

    client: Any
    key: str
    #: It is a sorted set (PriorityQueue), not a list (FifoQueue, LifoQueue).
    is_sorted: bool
    #: Returns the fields of a request. With pickles, it runs code that is in them.
    loads: Callable[[Any], Any]

    def size(self) -> int:
        """Return the number of requests."""
        client, key = self.client, self.key
        return int(client.zcard(key) if self.is_sorted else client.llen(key))

    def read(self, skip: int, count: int) -> list[Any]:
        """Return up to ``count`` requests as they are stored, without the first ``skip`` ones."""
        if self.is_sorted:
            return [*self.client.zrange(self.key, skip, skip + count - 1)]
        # From its end, at which nothing is pushed.
        return [*reversed(self.client.lrange(self.key, -skip - count, -skip - 1))]

    def remove(self, requests: Sequence[Any]) -> None:
        """Remove requests that were read."""
        with self.client.pipeline(transaction=False) as pipe:
            for request in requests:
                if self.is_sorted:
                    pipe.zrem(self.key, request)
                else:
                    pipe.lrem(self.key, -1, request)
            pipe.execute()


@contextmanager
def open_old_queue(settings: BaseSettings, spider: str, key: str) -> Iterator[OldQueue]:
    """Yield the queue at the key; "": at the one that the settings name. Raise TBloomError if there is none."""
    from scrapy_redis import defaults, picklecompat  # noqa: PLC0415 - only a move needs them

    if not key:
        form = settings.get(_KEY) or defaults.SCHEDULER_QUEUE_KEY
        try:
            key = form % {"spider": spider}
        except (LookupError, TypeError, ValueError):
            raise ConfigError(
                _KEY, form, "a key, in which %(spider)s is the spider's name"
            ) from None
    serializer = settings.get(_SERIALIZER) or picklecompat
    try:
        loads = (import_module(serializer) if isinstance(serializer, str) else serializer).loads
    except (ImportError, AttributeError):
        raise ConfigError(_SERIALIZER, serializer, "a module with loads()") from None
    client, _ = make_client(settings)
    with closing(client):
        kind, place = text(client.type(key)), server_settings(settings)
        if kind == "none":
            hint = "it is empty, or has another key, or scrapy-redis has deleted it (SCHEDULER_PERSIST)"
            raise TBloomError(f"there is no queue {key!r} ({place}): {hint}")
        if kind not in ("zset", "list"):
            raise TBloomError(f"{key!r} ({place}) holds a {kind}, no queue of scrapy-redis")
        yield OldQueue(client, key, kind == "zset", loads)


# A JOBDIR


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
            raise TBloomError(
                f"a request that waits in {folder} can't be restored: {why(error)}"
            ) from None
    return found
