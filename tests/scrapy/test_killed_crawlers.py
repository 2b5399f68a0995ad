"""One of four crawlers is killed (kill -9) in the middle of a real crawl."""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

from tbloom.demo.site import first_page, serve, survey
from tests.helpers.forked import Started
from tests.helpers.making import missing

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
PAGES = 530
FULL = os.environ.get("TBLOOM_FAULTS") == "full"
TREE = 400 if FULL else 200
SHARED_QUEUE = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}
OWN_QUEUES: dict[str, Any] = {}
DONE = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "TBLOOM_MARK": "done", "TBLOOM_SESSION_TTL": 5}
SCHEDULED = {"ADDONS": {"tbloom.scrapy.Addon": 500}}


@dataclass
class Site:
    """A site on loopback, and the pages that a crawl of it must fetch."""

    spider: str
    url: str
    start: str
    pages: set[str]
    #: Pages that no link leads to.
    orphans: list[str]


@pytest.fixture
def tree(site: str) -> Site:
    """TREE pages with one link to each page, and 7 links on a page."""
    return Site("tree", site, "0", {*map(str, range(TREE))}, [])


@pytest.fixture(scope="module")
def docs() -> Iterator[Site]:
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    folder = str(DOCUMENTATION)
    pages = {f"/{path.relative_to(DOCUMENTATION)}" for path in DOCUMENTATION.rglob("*.html")}
    assert len(pages) == PAGES
    with serve(folder) as server:
        start = first_page(folder)
        linked = survey(server, start, lambda _: None).pages
        yield Site("docs", server.url, start, pages, sorted(pages - {*linked}))


class Fleet:
    """Crawlers on one filter, and the pages that they have fetched."""

    def __init__(self, site: Site, url: str, folder: Path, settings: dict[str, Any]) -> None:
        self._site, self._folder = site, folder
        name = f"test-{secrets.token_hex(6)}"
        self._settings = {
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": 10_000,
            "TBLOOM_ERROR_RATE": 1e-9,
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
            **settings,
        }
        self._logs: list[Path] = []
        self.crawlers: list[Started] = []

    def start(self) -> None:
        """Starts one more crawler."""
        self._logs.append(self._folder / f"{secrets.token_hex(4)}.log")
        arguments = {
            "site": self._site.url,
            "start_page": self._site.start,
            "orphans": self._site.orphans,
            "pages": len(self._site.pages),
            "log_file": str(self._logs[-1]),
        }
        job = {"spider": self._site.spider, "settings": self._settings, "arguments": arguments}
        self.crawlers.append(Started("tests.helpers.docs_crawler", json.dumps(job)))

    def fetched(self) -> Counter[str]:
        """How often the callback of each page has ended."""
        return Counter(
            line for log in self._logs if log.exists() for line in log.read_text().splitlines()
        )

    def kill_one(self, random_: random.Random) -> Path:
        """Kills one of four, after a random number of pages; its log."""
        pages = random_.randrange(1, len(self._site.pages) * 8 // 10)
        while self.fetched().total() < pages:
            time.sleep(0.01)
        victim = random_.randrange(len(self.crawlers))
        self.crawlers[victim].kill()
        return self._logs[victim]

    def finish(self) -> None:
        """Waits for all crawlers, and prints what they say."""
        for crawler in self.crawlers:
            print(*crawler.communicate())

    def __enter__(self) -> Self:
        for _ in range(4):
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for crawler in self.crawlers:
            crawler.kill()
            crawler.wait()


@pytest.mark.timeout(3600 if FULL else 600)
@pytest.mark.parametrize(
    ("kind", "queues", "restart", "times"),
    [
        pytest.param("docs", SHARED_QUEUE, False, 20 if FULL else 1, marks=pytest.mark.check),
        ("tree", SHARED_QUEUE, False, 20 if FULL else 1),
        pytest.param("tree", OWN_QUEUES, True, 20 if FULL else 1, marks=pytest.mark.check),
    ],
    ids=["docs, one queue", "tree, one queue", "tree, own queues"],
)
def test_every_page_is_fetched_though_a_crawler_is_killed(
    request: pytest.FixtureRequest,
    url: str,
    tmp_path: Path,
    *,
    kind: str,
    queues: dict[str, Any],
    restart: bool,
    times: int,
) -> None:
    """With TBLOOM_MARK = "done". Only pages of the killed crawler may be fetched twice.

    A crawler with its own queue is started again.
    """
    site: Site = request.getfixturevalue(kind)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Fleet(site, url, folder, {**queues, **DONE}) as fleet:
            victims = fleet.kill_one(random.Random(seed + number))
            if restart:
                fleet.start()
            fleet.finish()
        fetched = fleet.fetched()
        # The filter is not asked for the start page, and each crawler fetches it.
        twice = {page for page, n in fetched.items() if n > 1} - {site.start}
        print(f"{len(fetched)} pages fetched, {len(twice)} of them twice")
        assert site.pages == set(fetched)
        assert twice <= {*(victims.read_text().splitlines() if victims.exists() else ())}
        assert len(twice) <= 32  # the requests that one crawler runs at once


@pytest.mark.check
@pytest.mark.timeout(3600 if FULL else 600)
def test_pages_are_lost_where_they_are_marked_when_scheduled(
    tree: Site, url: str, tmp_path: Path
) -> None:
    """With TBLOOM_MARK = "scheduled": the requests that the killed crawler had taken out of the queue."""
    lost = 0
    for number in range(5 if FULL else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Fleet(tree, url, folder, {**SHARED_QUEUE, **SCHEDULED}) as fleet:
            fleet.kill_one(random.Random(number))
            fleet.finish()
        fetched = fleet.fetched()
        print(f"{TREE - len(fetched)} of {TREE} pages lost")
        lost += TREE - len(fetched)
        assert {1} == {n for page, n in fetched.items() if page != tree.start}
    if FULL:
        assert lost > 0
