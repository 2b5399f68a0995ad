"""A master dies in the middle of a crawl, and a Sentinel promotes its replica."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from time import sleep
from typing import Any

import pytest

from tests.helpers import forked, servers
from tests.helpers.account import FULL
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import missing
from tests.helpers.website import Server

CRAWLERS = 4
PAGES = [str(n) for n in range(2000 if FULL else 500)]
#: Pause of a crawler between two pages, so that the master dies while they crawl (seconds).
PAUSE = 0.005
#: Limit for the pages that are fetched twice: those answered in the last moment of the master.
MAX_TWICE = 20
#: Limit for the pages whose answers the crawlers have, and that are not fetched yet.
ANSWERED = CRAWLERS * 2 * 16


class _Site(Server):
    """Has every page, and the places of each in the order in which they were fetched."""

    def __init__(self) -> None:
        self.fetched: dict[str, list[int]] = defaultdict(list)
        lock, fetched, places = threading.Lock(), self.fetched, itertools.count()

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    fetched[self.path[1:]].append(next(places))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.server_port}/"


@pytest.fixture
def watched_site() -> Iterator[_Site]:
    with _Site() as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site
        site.shutdown()


def _crawl(site: str, sentinel_port: int, name: str, seed: int) -> forked.Started:
    """Crawls all pages in a process of its own, in an order of its own."""
    settings = {
        "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter",
        "REDIS_PARAMS": {
            "redis_cls": "tests.helpers.servers.sentinels_master",
            "port": sentinel_port,
        },
        "TBLOOM_KEY": name,
        "TBLOOM_ERROR_RATE": 1e-9,
        "TBLOOM_CAPACITY": 10_000,
        "TBLOOM_RETRY_FOR": 600,  # the machine may stand still for longer than by default
    }
    pages = [[page, {}] for page in random.Random(seed).sample(PAGES, len(PAGES))]
    job = {"spider": "pages", "site": site, "pages": pages, "pause": PAUSE, "settings": settings}
    return forked.Started("tests.helpers.crawl", json.dumps(job))


def _result(crawl: forked.Started) -> Any:
    out, errors = crawl.communicate()
    assert crawl.wait() == 0, errors
    return json.loads(out)


@pytest.mark.check
def test_four_crawlers_fetch_every_page_once_though_the_master_dies(
    watched_site: _Site, name: str
) -> None:
    """Except pages answered in the last moment of the master: replication is asynchronous."""
    binary = servers.BINARIES.get("redis-server")
    if binary is None:
        missing("redis-server")
    fetched = watched_site.fetched
    with (
        LocalRedis(binary) as master,
        servers.replica(binary, master),
        servers.sentinel(master) as port,
    ):
        crawls = [_crawl(watched_site.url, port, name, seed) for seed in range(CRAWLERS)]
        while len(fetched) < len(PAGES) / 3 and all(crawl.poll() is None for crawl in crawls):
            sleep(0.01)
        assert master.process is not None
        master.process.kill()
        master.process.wait()
        before = len(fetched)
        results = [*map(_result, crawls)]
    new, seen, wrong = (
        sum(result["stats"].get(f"tbloom/{stat}", 0) for result in results)
        for stat in ("new", "seen", "errors")
    )
    twice = {page: places for page, places in fetched.items() if places[1:]}
    print(
        f"{new + seen} requests = {new} new + {seen} seen; {len(fetched)} pages fetched, "
        f"{before} before the master died, {len(twice)} twice (at most {MAX_TWICE})"
    )
    assert ["finished"] * CRAWLERS == [result["finish_reason"] for result in results]
    assert (CRAWLERS * len(PAGES), 0) == (new + seen, wrong)
    assert set(PAGES) == fetched.keys()
    assert before < len(PAGES)
    assert new == sum(map(len, fetched.values())) == len(PAGES) + len(twice)
    assert len(twice) <= MAX_TWICE
    assert all(places[0] < before + ANSWERED for places in twice.values())
