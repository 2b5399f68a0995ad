"""Crawls of a tree that are stopped eight times, and then finished: which pages and items are missing."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.forked import Started
from tests.helpers.schedulers import ADDON

PAGES, STOPS = 150, 8
#: Pages that are fetched between two stops.
BETWEEN = 8

STOPPED_BY: dict[str, dict[str, Any]] = {
    "SIGINT": {},
    "SIGINT twice": {},
    "SIGTERM": {},
    "SIGKILL": {},
    "pages": {"CLOSESPIDER_PAGECOUNT": BETWEEN},
    "items": {"CLOSESPIDER_ITEMCOUNT": BETWEEN},
    "time": {"CLOSESPIDER_TIMEOUT": 1},
    "errors": {"CLOSESPIDER_ERRORCOUNT": 1, "TREE_START_FAILS": True},
}
QUEUES: dict[str, dict[str, Any]] = {
    "memory": {},
    "disk": {"JOBDIR": "FOLDER/job"},
    "scrapy-redis": {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
    },
}
#: The feed's name and options; %(time)s: each crawl writes a file of its own.
FEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "jsonlines": ("items.jl", {"format": "jsonlines"}),
    "csv": ("items.csv", {"format": "csv"}),
    "json": ("items-%(time)s.json", {"format": "json"}),
    "batches": ("items-%(time)s-%(batch_id)d.json", {"format": "json", "batch_item_count": 3}),
    "gzip": (
        "items-%(time)s.jl.gz",
        {
            "format": "jsonlines",
            "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
        },
    ),
}


class Tree:
    """Crawls of the tree, one after the other, on one filter."""

    def __init__(self, folder: Path, site: str, settings: dict[str, Any], feed: str) -> None:
        self._folder, self._log = folder, folder / "fetched"
        self._arguments = {"site": site, "pages": PAGES}
        self._arguments["log_file"] = str(self._log)
        name, options = FEEDS[feed]
        settings = {"FEEDS": {f"FOLDER/{name}": options}, **settings}
        self._settings = json.loads(json.dumps(settings).replace("FOLDER", str(folder)))

    def start(self, **settings: Any) -> Started:
        settings = {**self._settings, **settings}
        job = {"settings": settings, "arguments": self._arguments}
        return Started("tests.helpers.docs_crawler", json.dumps(job))

    def fetched(self) -> list[int]:
        return [*map(int, self._log.read_text().split())] if self._log.exists() else []

    def items(self) -> set[int]:
        """Those in the feed's files, also where a text was cut off."""
        texts = [read(path) for path in self._folder.glob("items*")]
        return {int(number) for text in texts for number in re.findall(r"page (\d+)\b", text)}

    def stop(self, how: str) -> None:
        """A crawl that is stopped once it has fetched some pages, unless it finishes before."""
        enough = len(self.fetched()) + BETWEEN
        crawl = self.start(**STOPPED_BY[how])
        name, *again = how.split()
        if hasattr(signal, name):
            while crawl.poll() is None and len(self.fetched()) < enough:
                time.sleep(0.01)
            crawl.send_signal(signal.Signals[name])
            if again:
                time.sleep(0.05)
                crawl.send_signal(signal.Signals[name])
        print(*crawl.communicate())


def read(path: Path) -> str:
    if path.suffix != ".gz":
        return path.read_text()
    with suppress(EOFError), gzip.open(path, "rt") as file:  # nobody reads one that was cut off
        return file.read()
    return ""


class Row(NamedTuple):
    """A kind of crawl, and if pages or items are missing in the end; None: perhaps."""

    mark: str
    how: str
    queue: str = "memory"
    feed: str = "jsonlines"
    pages: bool | None = False
    items: bool | None = False


#: docs/scrapy.md has a table of them. Each way to stop, each mark, each queue and each feed is in a row.
ROWS = [Row("done", "pages"), Row("scheduled", "SIGINT", "disk")]
LONG = [
    *(Row("done", how) for how in STOPPED_BY if how != "pages"),
    *(Row("done", how, "scrapy-redis") for how in ("SIGINT", "SIGKILL")),
    *(Row("done", how, "disk") for how in ("pages", "SIGKILL")),
    *(Row("done", "SIGKILL", feed=feed) for feed in FEEDS if feed != "jsonlines"),
    Row("done", "SIGINT", feed="gzip"),
    Row("parsed", "SIGKILL", items=None),
    Row("scheduled", "SIGTERM", "scrapy-redis"),
    Row("scheduled", "SIGINT", pages=True, items=True),
    Row("scheduled", "SIGKILL", "disk", pages=True, items=True),
]


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.check] * (row in LONG)) for row in ROWS + LONG],
    ids=lambda row: ", ".join(row[:4]),
)
def test_a_crawl_that_is_stopped_eight_times(
    site: str, url: str, name: str, tmp_path: Path, row: Row
) -> None:
    """Pages and items are missing only where nothing else is promised."""
    own = {
        "REDIS_URL": url,
        "TBLOOM_KEY": name,
        "TBLOOM_CAPACITY": 10_000,
        "TBLOOM_MARK": row.mark,
        "SCHEDULER_QUEUE_KEY": f"{name}:requests",
        **({} if row.mark == "scheduled" else {"TBLOOM_SESSION_TTL": 3}),
    }
    tree = Tree(tmp_path, site, {**ADDON, **own, **QUEUES[row.queue]}, row.feed)
    for _ in range(STOPS):
        tree.stop(row.how)
        if row.how in ("SIGINT twice", "SIGKILL"):  # the files of Scrapy's queue may be damaged
            shutil.rmtree(tmp_path / "job", ignore_errors=True)
    for _ in range(2):  # the first one leaves what five crawlers have died of to the next one
        print(*tree.start().communicate())
    fetched = tree.fetched()
    pages, items = {*range(PAGES)} - {*fetched}, {*range(PAGES)} - tree.items()
    again = len(fetched) - len({*fetched} - {0}) - fetched.count(0)
    print(f"{pages=} {items=} missing; {again} fetched again")
    assert row.pages in (None, bool(pages))
    assert row.items in (None, bool(items))
