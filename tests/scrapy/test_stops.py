"""Crawls of a tree that are stopped eight times, and then finished, and four of which one is killed (kill -9): which pages and
items are missing."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import LocalBloom, TimeBloom
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.schedulers import ADDON

PAGES, STOPS = 150, 8
#: Pages that are fetched between two stops.
BETWEEN = 8
#: Pages of a tree with four crawlers.
FLEET_PAGES = 120
CAPACITY, ERROR_RATE = 10_000, 1e-9
SHARED = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}
QUEUES: dict[str, dict[str, Any]] = {"memory": {}, "disk": {}, "scrapy-redis": SHARED}

STOPPED_BY: dict[str, dict[str, Any]] = {
    "SIGINT": {},
    "SIGINT twice": {},
    "SIGTERM": {},
    "SIGKILL": {},
    "pages": {"CLOSESPIDER_PAGECOUNT": BETWEEN},
}
#: These may damage the files of Scrapy's queue, and end pages in work.
KILLS = ("SIGINT twice", "SIGKILL")


class Tree:
    """Crawls of the tree on one filter."""

    def __init__(self, folder: Path, site: str, pages: int, settings: dict[str, Any]) -> None:
        self._folder, self._site, self._pages, self.settings = folder, site, pages, settings
        #: The crawls so far, by the files of the pages that they have fetched.
        self.crawls: dict[Path, Forked] = {}

    def start(self, **settings: Any) -> Forked:
        file = self._folder / f"fetched-{len(self.crawls)}"
        arguments = {"size": self._pages, "fetched_file": str(file)}
        own = {**self.settings, **settings}
        self.crawls[file] = crawls.start("tree", self._site, own, **arguments)
        return self.crawls[file]

    def fetched(self) -> Counter[int]:
        """How often the callback of each page has ended."""
        return Counter(page for file in self.crawls for page in pages_in(file))

    def items(self) -> set[int]:
        """Those in the feed's files, also where a text was cut off."""
        text = (self._folder / "items.jl").read_text()
        return {int(number) for number in re.findall(r"page (\d+)\b", text)}

    def marked(self) -> set[int]:
        """The pages that the filter has seen."""
        pages = [Request(f"{self._site}{page}") for page in range(self._pages)]
        size: Any = {"capacity": CAPACITY, "error_rate": ERROR_RATE}
        place = self.settings["REDIS_URL"], self.settings["TBLOOM_KEY"]
        path = self.settings.get("TBLOOM_PATH")
        with LocalBloom(path=path, **size) if path else TimeBloom.from_url(*place, **size) as seen:
            answers = seen.contains_many(map(fingerprint, pages))
        return {page for page, is_seen in enumerate(answers) if is_seen}

    def given_up(self) -> set[int]:
        """The pages that crawls have given up, because crawlers have died of them, and those to which only they lead."""
        log = (self._folder / "log").read_text(encoding="utf-8")
        pages = re.findall(rf"{re.escape(self._site)}(\d+) is given up: 4 crawlers", log)
        return {child for page in pages for child in branch(int(page), self._pages)}

    def stop(self, how: str) -> None:
        """A crawl that is stopped once it has fetched some pages, unless it finishes before."""
        enough = self.fetched().total() + BETWEEN
        crawl = self.start(**STOPPED_BY[how])
        name, *again = how.split()
        if hasattr(signal, name):
            while crawl.is_running and self.fetched().total() < enough:
                time.sleep(0.01)
            crawl.send_signal(signal.Signals[name])
            if again:
                time.sleep(0.05)
                crawl.send_signal(signal.Signals[name])
        print(crawl.result())


def branch(page: int, size: int) -> Iterator[int]:
    """The page, and all pages of the tree to which it leads."""
    yield page
    for child in range(7 * page + 1, min(7 * page + 8, size)):
        yield from branch(child, size)


def pages_in(file: Path) -> list[int]:
    """The pages that a crawl has fetched."""
    return [*map(int, file.read_text().split())] if file.exists() else []


@pytest.fixture
def plant(url: str, name: str, site: str, tmp_path: Path) -> Any:
    """A tree of so many pages, on the test's own filter."""

    def plant(pages: int, mark: str, queue: str, store: str = "bloom") -> Tree:
        local = {"TBLOOM_STORE": "local", "TBLOOM_PATH": str(tmp_path / "seen.tbloom")}
        settings = {
            **ADDON,
            **QUEUES[queue],
            "JOBDIR": str(tmp_path / "job") if queue == "disk" else None,
            "LOG_FILE": str(tmp_path / "log"),
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": CAPACITY,
            "TBLOOM_ERROR_RATE": ERROR_RATE,
            "TBLOOM_MARK": mark,
            **(local if store == "local" else {}),
            "FEEDS": {str(tmp_path / "items.jl"): {"format": "jsonlines"}},
        }
        return Tree(tmp_path, site, pages, settings)

    return plant


class Row(NamedTuple):
    """A kind of crawl, and if pages and items are missing in the end."""

    mark: str
    how: str
    queue: str = "memory"
    missing: bool = False
    store: str = "bloom"


#: docs/scrapy.md says what each mark loses. Each way to stop, each mark and each queue is in a row; `make test` has the first one.
ROWS = [
    Row("done", "pages"),
    Row("scheduled", "SIGINT", "disk"),
    *(Row("done", how) for how in STOPPED_BY if how != "pages"),
    *(Row("done", how, "disk") for how in ("pages", "SIGKILL")),
    *(Row("done", how, store="local") for how in STOPPED_BY),
    *(Row("done", how, "disk", store="local") for how in STOPPED_BY),
    Row("scheduled", "SIGTERM", "scrapy-redis"),
    Row("scheduled", "SIGINT", missing=True),
    Row("scheduled", "SIGKILL", "disk", missing=True),
]


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.check] * (row is not ROWS[0])) for row in ROWS],
    ids=lambda row: ", ".join([*row[:3], *[row.store] * (row.store != "bloom")]),
)
def test_a_crawl_that_is_stopped_eight_times(plant: Any, tmp_path: Path, row: Row) -> None:
    """Pages and items are missing only where nothing else is promised. With "done", all pages are marked; and
    none is fetched twice, unless the crawl is killed. (The filter is not asked for the start page.)

    A page that was in work at four kills is given up. On a slow machine, this happens by chance.
    """
    tree = plant(PAGES, row.mark, row.queue, row.store)
    tree.settings |= {"TBLOOM_SESSION_TTL": 5} if row.store == "bloom" else {}
    for _ in range(STOPS):
        tree.stop(row.how)
        if row.how in KILLS:
            shutil.rmtree(tmp_path / "job", ignore_errors=True)
    print(tree.start().result())
    fetched, given_up = tree.fetched(), tree.given_up()
    expected = {*range(PAGES)} - given_up
    pages, items = expected - {*fetched}, expected - tree.items()
    twice = {page for page, times in fetched.items() if times > 1} - {0}
    print(f"{pages=} {items=} missing; {twice=} {given_up=}")
    assert not given_up or row.how in KILLS
    assert [row.missing] * 2 == [bool(pages), bool(items)]
    assert not twice or row.how in KILLS
    assert row.missing or {*range(1, PAGES)} - given_up <= tree.marked()


def test_every_page_is_fetched_though_a_crawler_is_killed(plant: Any) -> None:
    """scrapy#7978, with TBLOOM_MARK = "done". Of four crawlers, one is killed: only pages of it that it had not marked are fetched twice."""
    tree = plant(FLEET_PAGES, "done", "memory")
    dies = random.randrange(4)
    for number in range(4):  # a living one must not be taken for dead
        tree.start(**{"TBLOOM_SESSION_TTL": 5} if number == dies else {})
    pages = wait_for_some(tree)
    victim = [*tree.crawls][dies]
    tree.crawls[victim].kill()
    marked = tree.marked()
    fetched_before = tree.fetched().total()
    for crawl in tree.crawls.values():
        print(crawl.result())
    fetched = tree.fetched()
    # The filter is not asked for the start page, and each crawler fetches it.
    twice = {page for page, times in fetched.items() if times > 1} - {0}
    counts = (
        f"{fetched_before} before the kill, {len(fetched)} in the end, {len(twice)} of them twice"
    )
    print(f"to be killed after {pages} pages; {counts}")
    assert {*range(FLEET_PAGES)} == {*fetched}
    assert twice <= {*pages_in(victim)} - marked


def wait_for_some(tree: Tree) -> int:
    """Waits until a random number of pages is fetched; returns it."""
    pages = random.randrange(1, FLEET_PAGES * 8 // 10)
    while tree.fetched().total() < pages:
        time.sleep(0.01)
    return pages
