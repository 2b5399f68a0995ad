"""The page store as Scrapy's HTTP cache, compared with Scrapy's own storages."""

from __future__ import annotations

import dbm
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pages_text import FILES, OURS
from scrapy import Request
from scrapy.http import HtmlResponse
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler
from stored import RealPages, draw, drop_from_memory, taken, timed

from tbloom.pages import PageStore

RAW = "tbloom, `PageStore` itself"
GZIP, DBM = "the same, `HTTPCACHE_GZIP`", "`DbmCacheStorage`"
#: Pages read from the disk.
_COLD = 200
_FILES = "scrapy.extensions.httpcache.FilesystemCacheStorage"
_OURS = {"HTTPCACHE_STORAGE": "tbloom.scrapy.PageCacheStorage"}
_SETTINGS: dict[str, dict[str, Any]] = {
    OURS: _OURS,
    **{
        f'tbloom, `TBLOOM_PAGES_CODEC = "{codec}"`': {**_OURS, "TBLOOM_PAGES_CODEC": codec}
        for codec in ("zstd", "identity")
    },
    FILES: {"HTTPCACHE_STORAGE": _FILES},
    GZIP: {"HTTPCACHE_STORAGE": _FILES, "HTTPCACHE_GZIP": True},
    DBM: {"HTTPCACHE_STORAGE": "scrapy.extensions.httpcache.DbmCacheStorage"},
}


class Peer(NamedTuple):
    """A store of pages, called as its users call it."""

    folder: Path
    #: The argument of ``put`` and ``get`` for the page of this number.
    prepare: Callable[[int], Any]
    put: Callable[[Any], object]
    #: Length of the body.
    get: Callable[[Any], int]
    close: Callable[[], object]


def peers(folder: Path, real: RealPages, *, pages: int, rounds: int) -> dict[str, Any]:
    """Each round puts a part of the pages into each store, then gets as many, drawn at random."""
    opened = {
        name: _in_scrapy(folder / f"peer-{n}", real, settings)
        for n, (name, settings) in enumerate(_SETTINGS.items())
    }
    opened[RAW] = _raw(folder / "peer-raw", real)
    part = pages // rounds
    put = [
        {
            name: _put(peer, range(number * part, (number + 1) * part))
            for name, peer in _in_turn(opened, number)
        }
        for number in range(rounds)
    ]
    os.sync()  # pending writes would disturb
    got = [
        {
            name: _get(peer, real, draw(random.Random(number), part * rounds, part))
            for name, peer in _in_turn(opened, number)
        }
        for number in range(rounds)
    ]
    cold = []
    for number in range(rounds):
        for peer in opened.values():
            drop_from_memory(peer.folder, "*")
        cold.append(
            {
                name: _get(peer, real, draw(random.Random(rounds + number), part * rounds, _COLD))
                for name, peer in _in_turn(opened, number)
            }
        )
    rows = []
    for name, peer in opened.items():
        peer.close()
        used = taken(peer.folder)
        shutil.rmtree(peer.folder)
        rows.append(
            {
                "name": name,
                **used,
                **{
                    f"{way}{figure}": median(seconds)
                    for way, costs in (("put", put), ("get", got), ("cold", cold))
                    for figure, seconds in (
                        ("", [cost[name] for cost in costs]),
                        ("_ratio", [cost[FILES] / cost[name] for cost in costs]),
                    )
                },
            }
        )
    return {
        "pages": part * rounds,
        "rounds": rounds,
        "part": part,
        "from_disk": min(part * rounds, _COLD),
        "dbm": dbm._defaultmod.__name__,  # type: ignore[attr-defined]  # what `dbm.open` takes
        "rows": rows,
    }


def _in_turn(opened: dict[str, Peer], number: int) -> Iterator[tuple[str, Peer]]:
    names = [*opened]
    for turn in range(len(names)):
        name = names[(turn + number) % len(names)]
        yield name, opened[name]


def _put(peer: Peer, numbers: Sequence[int]) -> float:
    """Seconds per page."""
    items = [peer.prepare(number) for number in numbers]
    start = time.perf_counter()
    for item in items:
        peer.put(item)
    return (time.perf_counter() - start) / len(items)


def _get(peer: Peer, real: RealPages, numbers: Sequence[int]) -> float:
    """Seconds per page."""
    length = sum(len(real.body(number)) for number in numbers)
    return timed(peer.get, [peer.prepare(number) for number in numbers], length)


def _in_scrapy(folder: Path, real: RealPages, settings: dict[str, Any]) -> Peer:
    """As ``HttpCacheMiddleware`` opens it, and calls it."""
    crawler = get_crawler(settings_dict={"HTTPCACHE_DIR": str(folder), **settings})
    spider = crawler.spider = crawler._create_spider("bench")
    storage = load_object(crawler.settings["HTTPCACHE_STORAGE"])(crawler.settings)
    storage.open_spider(spider)

    def prepare(number: int) -> tuple[Request, HtmlResponse]:
        request = Request(real.url(number))
        crawler.request_fingerprinter.fingerprint(request)  # the dupefilter has asked for it
        headers = real.headers(number)
        return request, HtmlResponse(request.url, headers=headers, body=real.body(number))

    return Peer(
        folder,
        prepare,
        lambda item: storage.store_response(spider, *item),
        lambda item: len(storage.retrieve_response(spider, item[0]).body),
        lambda: storage.close_spider(spider),
    )


def _raw(folder: Path, real: RealPages) -> Peer:
    store = PageStore(folder)
    return Peer(
        folder,
        lambda number: (real.url(number), real.body(number), real.headers(number)),
        lambda item: store.put(item[0], item[1], headers=item[2]),
        lambda item: len(store.get(item[0]).body),  # type: ignore[union-attr]
        store.close,
    )
