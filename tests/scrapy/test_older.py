"""An older version of tbloom beside this one, as in a deployment that takes hours: neither loses what the other has written.

An older one can't read packed notes: it leaves what it takes of a newer one as failed, to a newer one.

The older one comes out of this repository's history.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tbloom.bloom.claims.fleet import FAILED, GIVEN_UP, Fleet, Pages
from tests.helpers.keptpages import view_of
from tests.helpers.website import Handler, served

#: The last commit before failed pages were kept in an index.
OLDER = "d2d82ba2"
ROOT = Path(__file__).parents[2]
CRAWL = """
import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Shop(scrapy.Spider):
    name = "shop"
    start_urls = json.loads(sys.argv[2])

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        yield {"page": response.url}
        for number in range(response.meta.get("links", 0) or int(response.headers["Links"])):
            yield response.follow(f"/{number}")


process = CrawlerProcess(json.loads(sys.argv[1]))
process.crawl(Shop)
process.start()
"""
PAGES = 60


class Site(Handler):
    """/ leads to ``PAGES`` pages. While ``is_down``, the other ones answer 503."""

    def get(self) -> None:
        with self.server.lock:
            self.server.asked[self.path] += 1
        if self.path != "/" and self.server.is_down:
            self.answer(503)
        else:
            self.answer(200, b"<html>", Links=PAGES if self.path == "/" else 0)


@pytest.fixture(scope="module")
def older(tmp_path_factory: Any) -> Path:
    """A folder with the older version."""
    folder: Path = tmp_path_factory.mktemp("older")
    command = ["git", "-C", str(ROOT), "archive", OLDER, "tbloom", "lua"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a copy without the history of this repository")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Crawls:
    """Crawls of both versions on one filter and one site."""

    def __init__(self, url: str, name: str, older: Path, site: Any) -> None:
        self.site, self.older = site, older
        self.settings = {
            "ADDONS": {"tbloom.scrapy.Addon": 500},
            "REDIS_URL": url,
            "TBLOOM_KEY": name,
            "TBLOOM_SESSION_TTL": 4,
            "TBLOOM_ERROR_RATE": 1e-9,
            "RETRY_ENABLED": False,
            "LOG_LEVEL": "WARNING",
            "TELNETCONSOLE_ENABLED": False,
        }

    def start(self, version: str, *paths: str, **more: Any) -> subprocess.Popen[str]:
        """Starts a crawl of these paths."""
        folder = self.older if version == "older" else ROOT
        urls = [f"{self.site.url}{path}" for path in paths]
        words = [json.dumps({**self.settings, **more}), json.dumps(urls)]
        command = [sys.executable, "-c", CRAWL, *words]
        env = {"PYTHONPATH": str(folder), "PATH": ""}
        # With -c, modules of the working directory come first.
        return subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE, text=True)

    def run(self, version: str, *paths: str, **more: Any) -> str:
        crawl = self.start(version, *paths, **more)
        log = crawl.communicate()[1]
        assert 0 == crawl.returncode, log
        return log

    def fetched(self) -> dict[str, int]:
        """How often each page was asked for, but for the start page."""
        asked = dict(self.site.asked)  # in one step, because threads of the site change it
        return {path: times for path, times in asked.items() if path != "/"}


@pytest.fixture
def site_of_the_test() -> Any:
    with served(Site, asked=Counter(), is_down=False, lock=threading.Lock()) as site:
        yield site


@pytest.fixture
def crawls(url: str, name: str, older: Path, site_of_the_test: Any) -> Crawls:
    return Crawls(url, name, older, site_of_the_test)


def all_once(times: int = 1) -> dict[str, int]:
    return {f"/{number}": times for number in range(PAGES)}


@pytest.mark.check
def test_both_share_a_site(crawls: Crawls, open_fleet: Any) -> None:
    for order in (("older", "newer"), ("newer", "older")):
        started = [crawls.start(version, "/", CONCURRENT_REQUESTS=2) for version in order]
        logs = [crawl.communicate()[1] for crawl in started]
        assert [0, 0] == [crawl.returncode for crawl in started], logs
        assert "ERROR" not in logs[order.index("newer")]
        listed = {f"/{page.url.rpartition('/')[2]}" for page in open_fleet("shop").kept()}
        assert all_once().keys() - crawls.fetched() == listed
        crawls.run("newer")
        assert all_once() == crawls.fetched()
    fleet: Fleet = open_fleet("shop")
    assert Pages() == view_of(fleet).pages


@pytest.mark.parametrize(
    "order", [pytest.param(("older", "newer"), marks=pytest.mark.check), ("newer", "older")]
)
def test_each_takes_what_has_failed_for_the_other(
    crawls: Crawls, open_fleet: Any, order: tuple[str, str]
) -> None:
    fleet: Fleet = open_fleet("shop")
    crawls.site.is_down = True
    crawls.run(order[0], "/")
    reason = "status/503" if order[0] == "newer" else "unknown"
    kept = [(page.state, page.reason, page.tries) for page in fleet.kept()]
    assert [(FAILED, reason, 1)] * PAGES == kept
    crawls.site.is_down = False
    crawls.run(order[1])
    if order[1] == "older":
        assert {FAILED} == {page.state for page in fleet.kept()}
        crawls.run("newer")
    assert all_once(2) == crawls.fetched()
    assert [] == [*fleet.kept()]
    crawls.run("newer", "/")
    assert all_once(2) == crawls.fetched()


@pytest.mark.check
def test_pages_that_have_failed_for_both_are_given_up_once(crawls: Crawls, open_fleet: Any) -> None:
    """The older one follows a link to them, and takes none."""
    fleet: Fleet = open_fleet("shop")
    crawls.site.is_down = True
    for version in ("older", "older", "newer", "older"):
        crawls.run(version, *["/"] * (not crawls.fetched()))
    assert all_once(3) == crawls.fetched()
    kept = {(page.state, page.reason, page.tries) for page in fleet.kept()}
    assert {(GIVEN_UP, "status/503", 3)} == kept
    crawls.site.is_down = False
    crawls.run("older", "/0", "/1")
    assert PAGES - 2 == view_of(fleet).pages.given_up
    assert (PAGES - 2, 0) == fleet.retry(fleet.kept([GIVEN_UP]))
    crawls.run("older")
    assert all_once(4) == crawls.fetched()
    assert [] == [*fleet.kept()]


@pytest.mark.check
@pytest.mark.parametrize("order", [("older", "newer"), ("newer", "older")])
def test_each_takes_over_the_pages_of_the_other_that_was_killed(
    crawls: Crawls, order: tuple[str, str]
) -> None:
    killed = crawls.start(order[0], "/", CONCURRENT_REQUESTS=1, DOWNLOAD_DELAY=0.05)
    while len(crawls.fetched()) < 10:
        assert killed.poll() is None, killed.communicate()
    killed.kill()
    killed.communicate()
    crawls.run(order[1])
    crawls.run("newer")
    times = crawls.fetched()
    assert all_once().keys() == times.keys()
    # Some were fetched, and their commits were due.
    assert {1, 2} >= {*times.values()}
    assert PAGES + 10 > sum(times.values())
