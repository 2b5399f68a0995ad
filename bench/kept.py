"""Measures what failed pages cost: their memory with and without reasons, and how fast an operator lists and frees some of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from hashlib import sha1
from itertools import islice
from typing import Any

from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom import Note, TimeBloom
from tbloom.bloom.claims.fleet import FAILED, Fleet, failed_queue_of, grouped
from tbloom.bloom.claims.notes import History, with_failure

#: Pages in a call.
CHUNK = 1_000
WAYS = {"without reasons": False, "with reasons": True}


def measure(server: Server, *, pages: int = 1_000_000, some: int = 10_000) -> list[Table]:
    """Keep so many failed pages, and then list, retry and drop ``some`` of them."""
    memory, done = [], list[list[Any]]()
    for way, has_reasons in WAYS.items():
        before = used(server)
        with TimeBloom.from_url(server.url, "shop:tbloom", capacity=pages) as seen:
            fill(seen, pages, has_reasons=has_reasons)
            memory.append([way, pages, (used(server) - before) / pages])
            if has_reasons:
                done = verbs(server, Fleet(seen, "shop"), some)
        server.empty()
    first, last = (row[-1] for row in memory)
    rows = [[*row, row[-1] / first] for row in memory]
    columns = {"failed pages": "", "pages": ",d", "bytes a page": ",.0f", "x": ".2f"}
    assert last >= first
    took = {"": "", "pages": ",d", "time (s)": ".2f", "calls": ",d", "longest call (ms)": ".1f"}
    return [Table("kept", columns, rows), Table("kept-verbs", took, done)]


def fill(seen: TimeBloom, pages: int, *, has_reasons: bool) -> None:
    """Leave failed pages, as a crawl does that has ended."""
    for start in shown(range(0, pages, CHUNK), "failed pages"):
        items, notes = list[bytes](), list[Note]()
        for number in range(start, start + CHUNK):
            url = f"https://shop.example.com/products/category-{number % 97}/item-{number}.html"
            item, fields = sha1(url.encode(), usedforsecurity=False), {"url": url}
            text = json.dumps(
                {
                    **fields,
                    "callback": "parse_article",
                    "headers": {"!dict": [[{"!bytes": "Referer"}, [{"!bytes": url[:44]}]]]},
                    "meta": {"depth": 3, "link_text": f"Item {number}"},
                }
            )
            if has_reasons:
                reason = ("status/503", "callback/KeyError")[number % 2]
                failed_at = 1_760_000_000 + number
                text = with_failure(text, History(reason=reason, failed_at=failed_at).failure)
            items.append(item.digest())
            queue, host = failed_queue_of("shop"), "shop.example.com"
            notes.append(Note(f"{item.hexdigest()}\n{text}", queue, host, failures=1))
        seen.push_many(items, notes)


def verbs(server: Server, fleet: Fleet, some: int) -> list[list[Any]]:
    """Return a row for each verb: how many pages, and what it took."""

    def first() -> Any:
        return islice(fleet.kept([FAILED]), some)

    jobs: dict[str, Callable[[], Any]] = {
        "`tbloom failed`: read and group": lambda: grouped(first()),
        "`tbloom retry`": lambda: fleet.retry(first()),
        "`tbloom drop`": lambda: fleet.drop(first()),
    }
    rows = []
    for name, job in jobs.items():
        server.client.config_set("slowlog-log-slower-than", 0)
        server.client.config_set("slowlog-max-len", 100_000)
        server.client.slowlog_reset()
        began = time.perf_counter()
        job()
        took = time.perf_counter() - began
        entries = server.client.slowlog_get(100_000)
        server.client.config_set("slowlog-log-slower-than", 10_000)
        names = b"EVALSHA", b"EVAL", b"ZRANGEBYLEX", b"HMGET"
        calls = [each for each in entries if each["command"].split(b" ", 1)[0] in names]
        longest = max(each["duration"] for each in calls) / 1000
        rows.append([name, some, took, len(calls), longest])
    return rows


def used(server: Server) -> int:
    """Return the server's memory."""
    return int(server.client.info("memory")["used_memory"])
