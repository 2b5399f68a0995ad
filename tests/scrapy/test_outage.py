"""``TBLOOM_ON_ERROR``: what a crawl does while its server is away, and when it is back."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import Claim, TimeBloom
from tbloom.scrapy.outage import NEW, Answers, CrawlBloom, CrawlExact, Guess
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY
from tests.helpers.website import Handler, Server, served

STORES = pytest.mark.parametrize("store", [CrawlBloom, CrawlExact])
LONG = pytest.mark.check
MODES = pytest.mark.parametrize(
    "settings",
    [SCHEDULED, pytest.param(SCRAPY, marks=LONG), DONE],
    ids=["add-on", "dupefilter alone", "done"],
)


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with LocalRedis(needed(), *options) as server:
        yield server


@pytest.fixture(autouse=True)
def _is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test says so, however long the machine stands still."""
    monkeypatch.setattr("tbloom.scrapy.outage.HOLD_OFF", 3600.0)


class Page(Handler):
    """Page 0, 1, ... of a tree."""

    def get(self) -> None:
        site, number = self.server, int(self.path[1:])
        if number >= site.held:
            site.opened.wait(100)
        self.answer(200)
        site.fetched[number] += 1


@contextmanager
def a_site(pages: int = 10**9, held: int = 10**9) -> Iterator[Server]:
    """A site of so many pages; those from ``held`` on wait until the test has opened them."""
    opened = threading.Event()
    with served(Page, pages=pages, held=held, opened=opened, fetched=Counter()) as site:
        try:
            yield site
        finally:
            opened.set()


def wait_for(pages: int, site: Server, crawl: Forked) -> None:
    """Waits until so many pages are fetched."""
    while site.fetched.total() < pages and crawl.is_running:
        time.sleep(0.01)


@pytest.fixture
def start(server: LocalRedis, name: str) -> Iterator[Callable[..., Forked]]:
    """Starts a crawl of a site in a process of its own."""
    started: list[Forked] = []

    def start(site: Server, settings: dict[str, Any]) -> Forked:
        own = {"REDIS_URL": server.url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 10_000}
        tree = {"size": site.pages, "fetched_file": os.devnull}
        started.append(crawls.start("tree", f"{site.url}/", {**own, **settings}, **tree))
        return started[-1]

    yield start
    for crawl in started:
        crawl.kill()


def result(crawl: Forked) -> dict[str, Any]:
    """What the crawl says when it ends."""
    ended: dict[str, Any] = crawl.result()
    ended["errors"] = [
        line for line in ended["log"].splitlines() if line.startswith(("ERROR", "CRITICAL"))
    ]
    return ended


@MODES
def test_an_outage_is_waited_for_once_and_ends_the_crawl(
    server: LocalRedis, start: Any, settings: dict[str, Any]
) -> None:
    """By default."""
    with a_site() as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 1})
        wait_for(30, site, crawl)
        server.kill()
        ended = result(crawl)
    assert "tbloom_error" == ended["finish_reason"]
    # With "done", a call that asks for links and one that marks pages may wait at the same time.
    assert ended["stats"]["tbloom/errors"] in ((1, 2) if settings is DONE else (1,))
    [error] = ended["errors"]
    assert "the server does not answer, so the crawl ends" in error
    assert "Traceback" not in ended["log"]
    unmarked = re.findall(r"(\d+) pages were fetched and not marked", ended["log"])
    marked = ended["stats"].get("tbloom/done", 0)
    followed = site.fetched.total() - 1  # the filter is not asked for the start page
    assert unmarked == ([str(followed - marked)] if settings is DONE else [])


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_the_wait(server: LocalRedis, start: Any, signals: int) -> None:
    """And so do two. It would take ten minutes otherwise."""
    with a_site() as site:
        crawl = start(site, {**DONE, "TBLOOM_RETRY_FOR": 600})
        wait_for(30, site, crawl)
        server.kill()
        time.sleep(2)
        for _ in range(signals):
            crawl.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        ended = result(crawl)
    # None: the reactor stops before the crawl is closed, at a second signal, and at a first one where it closes already.
    assert ended["finish_reason"] in ("tbloom_error", "shutdown", None)
    assert len(ended["errors"]) <= 1


def test_the_next_crawl_fetches_requests_that_were_not_asked_about(
    server: LocalRedis, start: Any
) -> None:
    """With TBLOOM_MARK = "done": a page whose links could not be asked for is not marked."""
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    with a_site(pages=60) as site:
        crawl = start(site, {**settings, "CONCURRENT_REQUESTS": 1})
        wait_for(5, site, crawl)
        server.kill()
        assert "tbloom_error" == result(crawl)["finish_reason"]
        server.restart()
        assert "finished" == result(start(site, settings))["finish_reason"]
        assert set(range(60)) == site.fetched.keys()


@contextmanager
def without_its_server(server: LocalRedis, start: Any) -> Iterator[Forked]:
    """A crawl that has fetched all six pages, half of them after its server was killed."""
    settings = {**DONE, "TBLOOM_ON_ERROR": "schedule", "TBLOOM_RETRY_FOR": 0.1}
    with a_site(pages=6, held=3) as site:
        crawl = start(site, settings)
        wait_for(3, site, crawl)
        server.kill()
        site.opened.set()
        wait_for(6, site, crawl)
        yield crawl


def test_an_idle_crawl_waits_for_the_server(server: LocalRedis, start: Any) -> None:
    """For an answer about other crawlers' pages."""
    with without_its_server(server, start) as crawl:
        time.sleep(2)
        assert crawl.is_running
        server.restart()
        ended = result(crawl)
    assert "finished" == ended["finish_reason"]
    assert 1 == ended["log"].count("the crawl waits for the server, to mark its pages")


def test_a_server_that_refuses_calls_after_an_outage_ends_the_crawl(
    server: LocalRedis, start: Any
) -> None:
    """With a line that says why; an idle crawl would wait for ever."""
    with without_its_server(server, start) as crawl:
        server._options += ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-evalsha")
        server.restart()
        ended = result(crawl)
        assert "tbloom_error" == ended["finish_reason"]
        assert "permissions" in ended["errors"][-1]


@MODES
def test_while_the_server_is_away_no_page_is_fetched_twice(
    server: LocalRedis, start: Any, name: str, settings: dict[str, Any]
) -> None:
    """Nor after that: the server is told of all pages before it is asked for another one."""
    settings = {
        **settings,
        "TBLOOM_ON_ERROR": "schedule",
        "TBLOOM_RETRY_FOR": 0.1,
        "CONCURRENT_REQUESTS": 60,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 60,
    }
    with a_site(pages=60, held=50) as site:
        crawl = start(site, settings)
        wait_for(5, site, crawl)
        server.kill()
        wait_for(50, site, crawl)
        server.restart()
        site.opened.set()
        ended = result(crawl)
        assert "not marked" not in ended["log"]  # the commits that failed were sent at the end
        items = [fingerprint(Request(f"{site.url}/{page}")) for page in range(1, 60)]
        assert dict.fromkeys(range(60), 1) == site.fetched
    assert "finished" == ended["finish_reason"]
    assert 1 == len(ended["errors"])
    with TimeBloom.from_url(server.url, name, capacity=10_000) as seen:
        assert [True] * 59 == seen.contains_many(items)
        assert not seen.client.exists(f"{{{name}}}:claims")


@contextmanager
def asking(url: str, name: str, store: Any = CrawlBloom, **arguments: Any) -> Iterator[Answers]:
    """What asks a crawl's store, and decides by itself where there is no answer."""
    seen = store.from_url(url, name, retry_for=0, **arguments)
    with closing(Answers(seen, "schedule")) as answers:
        yield answers


def ask(answers: Answers, *items: bytes) -> list[bool]:
    """Whether the items are new."""
    return [answer in NEW for answer in answers.ask([*items])]


@STORES
def test_the_policy_answers_while_the_server_is_down_and_the_server_after(
    server: LocalRedis, name: str, caplog: pytest.LogCaptureFixture, store: Any
) -> None:
    """It is asked once, and then not for a while; each change is said once."""
    caplog.set_level(logging.INFO, "tbloom")
    with asking(server.url, name, store) as answers:
        circuit = answers.circuit
        assert [True] == ask(answers, b"before")
        server.kill()
        for first in (True, *[False] * 9):
            assert [False] == ask(answers, b"before")
            assert [first] == ask(answers, b"new")
        assert 1 == circuit.errors
        with pytest.raises(redis.ConnectionError):
            answers.seen.info()  # there is no policy for what it would say
        server.restart()
        circuit.try_again()  # the time is over
        assert [False, False] == ask(answers, b"before", b"new")
        assert not circuit.is_open
    lost, back = (each.getMessage() for each in caplog.records if "server" in each.getMessage())
    assert "does not answer, so" in lost
    assert "answers again" in back


def test_a_claim_whose_release_failed_is_free_for_its_own_crawler(server: Any, name: str) -> None:
    with asking(server.url, name) as answers:
        assert [Claim.NEW] == answers.ask([b"a"], [""])
        server.kill()
        with pytest.raises(redis.ConnectionError):
            answers.seen.release_many([b"a"])
        answers.forget([b"a"])
        assert [Guess.SCHEDULED] == answers.ask([b"a"], [""])


def test_an_error_that_does_not_pass_is_raised(client: redis.Redis, url: str, name: str) -> None:
    """As does one of another password, or of a user who may not."""
    client.rpush(f"{{{name}}}:config", "x")
    with (
        asking(url, name) as answers,
        pytest.raises(redis.ResponseError, match="WRONGTYPE"),
    ):
        answers.ask([b"a"])
