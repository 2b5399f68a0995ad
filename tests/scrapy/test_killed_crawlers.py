"""One of four crawlers is killed (kill -9) in the middle of a real crawl."""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.forked import Started
from tests.helpers.schedulers import ADDON

FULL = os.environ.get("TBLOOM_FAULTS") == "full"
TREE, TIMES = (400, 20) if FULL else (200, 1)
SHARED_QUEUE = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}


class Fleet:
    """Crawlers of a tree of pages on one filter, and the pages that they have fetched: one link leads to each, and
    7 links are on a page."""

    def __init__(self, site: str, url: str, folder: Path, settings: dict[str, Any]) -> None:
        self._site, self._folder = site, folder
        name = f"test-{secrets.token_hex(6)}"
        self._settings = {
            **ADDON,
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": 10_000,
            "TBLOOM_ERROR_RATE": 1e-9,
            "TBLOOM_MARK": "done",
            "TBLOOM_SESSION_TTL": 5,
            "SCHEDULER_QUEUE_KEY": f"{name}:requests",
            **settings,
        }
        self._crawlers: dict[Path, Started] = {}

    def start(self) -> None:
        """Starts one more crawler."""
        log = self._folder / f"{secrets.token_hex(4)}.log"
        arguments = {"site": self._site, "pages": TREE}
        arguments["log_file"] = str(log)
        job = {"settings": self._settings, "arguments": arguments}
        self._crawlers[log] = Started("tests.helpers.docs_crawler", json.dumps(job))

    def fetched(self) -> Counter[str]:
        """How often the callback of each page has ended."""
        logs = [log for log in self._crawlers if log.exists()]
        return Counter(line for log in logs for line in log.read_text().splitlines())

    def kill_one(self, random_: random.Random) -> Path:
        """Kills one of four, after a random number of pages; its log."""
        pages = random_.randrange(1, TREE * 8 // 10)
        while self.fetched().total() < pages:
            time.sleep(0.01)
        victim = random_.choice([*self._crawlers])
        self._crawlers[victim].kill()
        return victim

    def finish(self) -> None:
        """Waits for all crawlers, and prints what they say."""
        for crawler in self._crawlers.values():
            print(*crawler.communicate())


@pytest.mark.timeout(3600 if FULL else 600)
@pytest.mark.parametrize(
    ("queues", "restart"),
    [(SHARED_QUEUE, False), pytest.param({}, True, marks=pytest.mark.check)],
    ids=["one queue", "own queues"],
)
def test_every_page_is_fetched_though_a_crawler_is_killed(
    site: str, url: str, tmp_path: Path, *, queues: dict[str, Any], restart: bool
) -> None:
    """With TBLOOM_MARK = "done". Only pages of the killed crawler may be fetched twice.

    A crawler with its own queue is started again.
    """
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for number in range(TIMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        fleet = Fleet(site, url, folder, queues)
        for _ in range(4):
            fleet.start()
        victims = fleet.kill_one(random.Random(seed + number))
        if restart:
            fleet.start()
        fleet.finish()
        fetched = fleet.fetched()
        # The filter is not asked for the start page, and each crawler fetches it.
        twice = {page for page, n in fetched.items() if n > 1} - {"0"}
        print(f"{len(fetched)} pages fetched, {len(twice)} of them twice")
        assert {*map(str, range(TREE))} == set(fetched)
        assert twice <= {*(victims.read_text().splitlines() if victims.exists() else ())}
        assert len(twice) <= 32  # the requests that one crawler runs at once
