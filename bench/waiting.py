"""What a page that waits costs Redis: its memory, and what the append-only file gets until the page is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import scrapy
from scrapy.utils.request import fingerprint
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue

from bench.serving import Server, fresh
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import write_note

#: So many links go in one call.
_CALL = 100


class _Shop(scrapy.Spider):
    name = "shop"

    def parse_item(self, response: Any) -> None:
        """Do nothing."""


def measure(*, pages: int = 5_000) -> Table:
    """Return the bytes per page, with its Referer and two keys of meta."""
    columns = {
        "": "",
        "memory of a waiting page (bytes)": ".0f",
        "append-only file (bytes a page)": ".0f",
    }
    rows = []
    for way, steps in {'`"done"`': _done, "scrapy-redis": _scrapy_redis}.items():
        with fresh("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0") as server:
            waits, ends = steps(server, [*_requests(pages)])
            before = _used(server)
            waits()
            memory = _used(server)[0] - before[0]
            ends()
            rows.append([way, memory / pages, (_used(server)[1] - before[1]) / pages])
    return Table("fleet-waiting", columns, rows)


def _requests(pages: int) -> Iterator[scrapy.Request]:
    shop = "https://www.example.com/catalogue/some-category"
    spider = _Shop()
    for number in range(pages):
        yield scrapy.Request(
            f"{shop}/product-{number:06d}/index.html",
            spider.parse_item,
            headers={"Referer": f"{shop}/page-{number // 20}.html"},
            meta={"depth": 3, "link_text": "A product"},
        )


def _done(server: Server, requests: list[scrapy.Request]) -> tuple[Callable[[], Any], ...]:
    seen, spider = TimeBloom.from_url(server.url, "shop:tbloom"), _Shop()
    seen.commit_many([b"first"])
    items = [*map(fingerprint, requests)]
    notes = [
        write_note(request, Token("", (item.hex(),)), spider, "shop", one_owner=False)
        for request, item in zip(requests, items, strict=True)
    ]
    calls = [slice(at, at + _CALL) for at in range(0, len(items), _CALL)]
    return (
        lambda: [seen.claim_many(items[some], notes=notes[some]) for some in calls],
        lambda: [*[seen.commit_many(items[some]) for some in calls], seen.close()],
    )


def _scrapy_redis(server: Server, requests: list[scrapy.Request]) -> tuple[Callable[[], Any], ...]:
    queue = PriorityQueue(server.client, _Shop(), "shop:requests")
    seen = RFPDupeFilter(server.client, "shop:dupefilter")
    return (
        lambda: [queue.push(request) for request in requests if not seen.request_seen(request)],
        lambda: [queue.pop() for _ in requests],
    )


def _used(server: Server) -> tuple[int, int]:
    """Return the bytes of memory and of the append-only file."""
    info: Any = server.client.info()
    return info["used_memory"], info["aof_current_size"]
