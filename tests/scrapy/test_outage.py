"""What a crawl does while its server is away, and when it is back."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import Request, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.request import fingerprint

from tbloom import Note, TimeBloom
from tbloom.scrapy.outage import CrawlBloom, Outage
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.proxy import FOR_TWEMPROXY, Fault, Proxy, Twemproxy
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY, UNREACHABLE
from tests.helpers.website import Handler, Server, served

LONG = pytest.mark.check
ADDONS = pytest.mark.parametrize("settings", [SCHEDULED, DONE], ids=["scheduled", "done"])
MODES = pytest.mark.parametrize(
    "settings",
    [SCHEDULED, pytest.param(SCRAPY, marks=LONG), DONE],
    ids=["scheduled", "dupefilter alone", "done"],
)
AWAY = "the server does not answer since"


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with LocalRedis(needed(), *options) as server:
        yield server


class Page(Handler):
    """Page 0, 1, ... of a tree."""

    def get(self) -> None:
        site = self.server
        if next(site.requests) >= site.held:
            site.opened.wait()
        self.answer(200)
        site.fetched[int(self.path[1:])] += 1


@contextmanager
def a_site(pages: int = 10**9, held: int = 10**9) -> Iterator[Server]:
    """A site of so many pages. It answers ``held`` requests, and the others wait until the test has opened it."""
    opened, own = threading.Event(), {"requests": count(), "fetched": Counter[int]()}
    with served(Page, pages=pages, held=held, opened=opened, **own) as site:
        try:
            yield site
        finally:
            opened.set()


def wait_for(pages: int, site: Server, crawl: Forked) -> None:
    """Waits until so many pages are fetched."""
    while site.fetched.total() < pages and crawl.is_running:
        time.sleep(0.01)


@pytest.fixture
def start(server: LocalRedis, name: str, tmp_path: Path) -> Iterator[Callable[..., Forked]]:
    """Starts a crawl of a site in a process of its own."""
    started: list[Forked] = []

    def start(site: Server, settings: dict[str, Any], *, soon: bool = False) -> Forked:
        own = {
            # Soon, it finds out that the server does not answer.
            "REDIS_URL": f"{server.url}{'?socket_timeout=1' * soon}",
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": 10_000,
            "LOG_FILE": str(tmp_path / "log"),
        }
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


def wait_for_outage(crawl: Forked, tmp_path: Path) -> None:
    """Waits until the crawl has noticed that its server is away."""
    log = tmp_path / "log"
    while crawl.is_running and AWAY not in log.read_text():
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        (DONE, "killed"),
        (SCHEDULED, "stopped"),
        pytest.param(SCHEDULED, "killed", marks=LONG),
        pytest.param(DONE, "stopped", marks=LONG),
    ],
    ids=["done, killed", "scheduled, stopped", "scheduled, killed", "done, stopped"],
)
def test_while_the_server_is_away_the_crawl_waits(
    server: LocalRedis, start: Any, name: str, tmp_path: Path, *, settings: dict[str, Any], how: str
) -> None:
    """Then it goes on: each page is fetched once, and marked. scrapy-redis#108 asks for it."""
    assert server.process is not None
    with a_site(pages=300, held=30) as site:
        crawl = start(site, settings, soon=how == "stopped")
        wait_for(30, site, crawl)
        if how == "killed":
            server.kill()
        else:
            server.process.send_signal(signal.SIGSTOP)
        site.opened.set()
        wait_for_outage(crawl, tmp_path)
        assert crawl.is_running
        if how == "killed":
            server.restart()
        else:
            server.process.send_signal(signal.SIGCONT)
        ended = result(crawl)
        items = [fingerprint(Request(f"{site.url}/{page}")) for page in range(1, 300)]
        assert dict.fromkeys(range(300), 1) == site.fetched
    assert ("finished", []) == (ended["finish_reason"], ended["errors"])
    outages = ended["stats"]["tbloom/outages"]  # on a busy machine, perhaps more than one
    assert 1 <= outages == ended["log"].count(AWAY) == ended["log"].count("answers again")
    with TimeBloom.from_url(server.url, name, capacity=10_000) as seen:
        assert [True] * 299 == seen.contains_many(items)
        assert not seen.client.exists(f"{{{name}}}:claims")


def test_a_crawl_behind_twemproxy_waits_and_ends(
    server: LocalRedis, start: Any, tmp_path: Path
) -> None:
    """As twemproxy, which says that its server is away by an error without a code (ioredis#573)."""
    with a_site(pages=60, held=30) as site, Twemproxy(server.url) as proxy:
        crawl = start(site, {**DONE, "REDIS_URL": proxy.url, "REDIS_PARAMS": FOR_TWEMPROXY})
        wait_for(30, site, crawl)
        server.kill()
        site.opened.set()
        wait_for_outage(crawl, tmp_path)
        server.restart()
        ended = result(crawl)
    assert ("finished", []) == (ended["finish_reason"], ended["errors"])
    assert (dict.fromkeys(range(60), 1), 59) == (site.fetched, ended["stats"]["tbloom/done"])


@MODES
def test_after_the_limit_an_outage_ends_the_crawl(
    server: LocalRedis, start: Any, settings: dict[str, Any]
) -> None:
    """Without the add-on, there is always one."""
    with a_site() as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 1})
        wait_for(30, site, crawl)
        server.kill()
        ended = result(crawl)
    assert "tbloom_error" == ended["finish_reason"]
    [error] = ended["errors"]
    assert f"The crawl ends: REDIS_URL is {server.url}: " in error
    assert "Traceback" not in ended["log"]
    assert "the commits of" not in ended["log"]  # pages are counted once
    unmarked = re.findall(r"(\d+) pages were fetched and not marked", ended["log"])
    marked = ended["stats"].get("tbloom/done", 0)
    followed = site.fetched.total() - 1  # the filter is not asked for the start page
    assert unmarked == ([str(followed - marked)] if settings is DONE else [])


@pytest.mark.parametrize(
    ("settings", "signals", "how"),
    [
        (SCHEDULED, 1, signal.SIGKILL),
        (DONE, 2, signal.SIGKILL),
        pytest.param(DONE, 1, signal.SIGSTOP, marks=LONG),
        pytest.param(SCHEDULED, 1, signal.SIGSTOP, marks=LONG),
        pytest.param(DONE, 1, signal.SIGKILL, marks=LONG),
        pytest.param(DONE, 2, signal.SIGSTOP, marks=LONG),
    ],
)
def test_a_signal_ends_the_wait(
    server: LocalRedis,
    start: Any,
    tmp_path: Path,
    *,
    settings: dict[str, Any],
    signals: int,
    how: signal.Signals,
) -> None:
    """And so do two. It would never end otherwise."""
    assert server.process is not None
    with a_site() as site:
        crawl = start(site, settings, soon=how == signal.SIGSTOP)
        wait_for(30, site, crawl)
        server.process.send_signal(how)
        wait_for_outage(crawl, tmp_path)
        for _ in range(signals):
            crawl.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        ended = result(crawl)
    # None: the reactor stops before the crawl is closed, at a second signal, and at a first one where it closes already.
    assert ended["finish_reason"] in ("tbloom_error", "shutdown", None)
    assert len(ended["errors"]) <= 1


class Beside(crawls.Tree):
    """A crawl without tbloom in the same process."""

    custom_settings: ClassVar[dict[str, Any]] = {"ADDONS": {}}  # type: ignore[assignment]


def crawl_beside(site: str, settings: dict[str, Any]) -> Any:
    """Both crawls, in the process of another one."""
    logging.basicConfig(filename=settings["LOG_FILE"], level=logging.INFO)
    given = {"site": f"{site}/", "size": 1, "fetched_file": os.devnull}
    return crawls.run([[(crawls.Tree, given), (Beside, given)]], **settings)


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another crawl"])
def test_a_signal_at_the_start_says_why_nothing_was_fetched(
    server: LocalRedis, start: Any, name: str, tmp_path: Path, *, is_alone: bool
) -> None:
    """Scrapy ends its event loop then, unless another crawl still uses it, which goes on to its end."""
    told, log = threading.Event(), tmp_path / "log"

    def choose(_: int) -> Fault:
        told.wait()
        return Fault.CUT_REQUEST

    with a_site(held=0) as site, Proxy(server.url, choose) as proxy:
        url = f"{proxy.url}?socket_timeout=600"
        own = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_RETRY_FOR": 1}
        own["LOG_FILE"] = str(log)
        crawl = start(site, own) if is_alone else Forked(crawl_beside, site.url, own)
        while crawl.is_running and not proxy.calls:
            time.sleep(0.01)
        crawl.send_signal(signal.SIGTERM)
        noticed = "Received SIGTERM" if is_alone else "(shutdown)"
        while crawl.is_running and noticed not in log.read_text():
            time.sleep(0.01)
        time.sleep(0.5)  # Scrapy logs the signal before it tells the crawl to end
        told.set()
        while not is_alone and crawl.is_running and "(tbloom_error)" not in log.read_text():
            time.sleep(0.01)
        site.opened.set()
        ended = crawl.result()
    said = log.read_text()
    [line] = [line for line in said.splitlines() if "fetched no page" in line]
    assert f"REDIS_URL is {proxy.url}" in line
    assert "Traceback" not in said
    if not is_alone:
        assert [[], []] == [each["failures"] for each in ended]
        assert {"tbloom_error", "shutdown"} == {each["finish_reason"] for each in ended}


def test_the_next_crawl_fetches_requests_that_were_not_asked_about(
    server: LocalRedis, start: Any
) -> None:
    """With TBLOOM_MARK = "done": a page whose links could not be asked for is not marked."""
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    with a_site(pages=60, held=5) as site:
        crawl = start(site, {**settings, "CONCURRENT_REQUESTS": 1})
        wait_for(5, site, crawl)
        server.kill()
        site.opened.set()
        assert "tbloom_error" == result(crawl)["finish_reason"]
        server.restart()
        assert "finished" == result(start(site, settings))["finish_reason"]
        assert set(range(60)) == site.fetched.keys()


class Moves(Page):
    """The later half of the pages waits until the test has opened them, and then leads to others."""

    def get(self) -> None:
        number = int(self.path[1:])
        if number < 3:
            super().get()
        else:
            self.server.opened.wait()
            self.answer(302, Location=f"/{number + 100}")


def test_a_page_whose_redirect_gets_no_answer_is_unfinished(server: LocalRedis, start: Any) -> None:
    """Its redirect is in no circle, and leads to no login. The next crawl fetches it."""
    opened = threading.Event()
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    own = {"requests": count(), "fetched": Counter[int]()}
    with served(Moves, pages=6, held=3, opened=opened, **own) as site:
        crawl = start(site, settings)
        wait_for(3, site, crawl)
        server.kill()
        opened.set()
        stats = result(crawl)["stats"]
    assert stats["tbloom/left"] >= 3
    assert "tbloom/failed" not in stats
    assert "dupefilter/filtered" not in stats


@contextmanager
def without_its_server(server: LocalRedis, start: Any, tmp_path: Path) -> Iterator[Forked]:
    """A crawl that has fetched all six pages, half of them after its server was killed."""
    with a_site(pages=6, held=3) as site:
        crawl = start(site, DONE)
        wait_for(3, site, crawl)
        server.kill()
        site.opened.set()
        wait_for(6, site, crawl)
        wait_for_outage(crawl, tmp_path)
        yield crawl


def test_a_crawl_that_needs_no_answer_ends_without_its_server(
    server: LocalRedis, start: Any
) -> None:
    """Its stats have no size of the window."""
    with a_site(pages=6, held=3) as site:
        crawl = start(site, SCHEDULED)
        wait_for(3, site, crawl)
        server.kill()
        site.opened.set()
        ended = result(crawl)
    assert ("finished", []) == (ended["finish_reason"], ended["errors"])
    assert (6, None) == (site.fetched.total(), ended["stats"].get("tbloom/window/items"))


#: What a server refuses writes with, how it is made to, and how it is mended.
REFUSALS = {
    "OOM": ({"maxmemory": 1}, {"maxmemory": 0}, "the server's memory is full: raise its maxmemory"),
    "MISCONF": ({"save": "3600 1"}, {"save": ""}, "make room on the server's disk"),
}


@contextmanager
def refusing_writes(server: LocalRedis, refusal: str) -> Iterator[None]:
    """Lets the server refuse writes, within a block."""
    worse, better, _ = REFUSALS[refusal]
    with redis.Redis.from_url(server.url) as client:
        if refusal == "MISCONF":  # it can't save: a folder has the name of the file
            (server.folder / "dump.rdb").mkdir()
        for name, value in worse.items():
            client.config_set(name, value)
        if refusal == "MISCONF":
            client.bgsave()
            while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
                time.sleep(0.01)
        yield
        for name, value in better.items():
            client.config_set(name, value)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_fleet_waits_while_its_server_refuses_writes(
    server: LocalRedis, start: Any, tmp_path: Path, refusal: str
) -> None:
    """sidekiq#5558, channels_redis#118: then each page is fetched once. One line of each crawler says what to do."""
    logs = [tmp_path / name for name in "abc"]
    with a_site(pages=300, held=30) as site:
        crawls = [start(site, {**DONE, "LOG_FILE": str(log)}) for log in logs]
        for crawl in crawls:
            wait_for(30, site, crawl)
        with refusing_writes(server, refusal):
            site.opened.set()
            while not any("crawl waits for room" in log.read_text() for log in logs):
                time.sleep(0.02)
            time.sleep(1)
            assert all(crawl.is_running for crawl in crawls)
        ended = [result(crawl) for crawl in crawls]
        assert {**dict.fromkeys(range(300), 1), 0: 3} == site.fetched  # each starts with page 0
    assert [("finished", [])] * 3 == [(each["finish_reason"], each["errors"]) for each in ended]
    assert 299 == sum(each["stats"].get("tbloom/done", 0) for each in ended)
    [*lines] = [line for log in logs for line in log.read_text().splitlines() if "for room" in line]
    assert lines
    assert all(REFUSALS[refusal][2] in line for line in lines)


def test_a_crawl_begins_once_its_server_has_room(
    server: LocalRedis, start: Any, tmp_path: Path
) -> None:
    with a_site(pages=30) as site:
        with refusing_writes(server, "OOM"):
            crawl = start(site, DONE)
            log = tmp_path / "log"
            while not (log.exists() and "crawl waits for room" in log.read_text()):
                assert crawl.is_running
                time.sleep(0.02)
        ended = result(crawl)
    assert ("finished", []) == (ended["finish_reason"], ended["errors"])
    assert dict.fromkeys(range(30), 1) == site.fetched


@ADDONS
def test_after_the_limit_a_refusal_ends_the_crawl(
    server: LocalRedis, start: Any, *, settings: dict[str, Any]
) -> None:
    with a_site() as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 1})
        wait_for(30, site, crawl)
        with refusing_writes(server, "OOM"):
            ended = result(crawl)
    assert "tbloom_error" == ended["finish_reason"]
    assert AWAY not in ended["log"]
    [error] = ended["errors"]
    assert REFUSALS["OOM"][2] in error


@pytest.fixture
def outage() -> tuple[Outage, list[str]]:
    """An outage, and what is called when the server is back."""
    backs = list[str]()
    return Outage("REDIS_URL", 100, lambda: False, lambda: backs.append("back")), backs


@contextmanager
def a_store(server: LocalRedis, name: str, outage: Outage) -> Iterator[CrawlBloom]:
    """A crawl's store, which has "a" in its local cache."""
    client = redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))
    with CrawlBloom(client, name, capacity=1000, cache_size=10) as store:
        store.outage = outage
        outage.wait_for(partial(store.add, "a"))
        yield store


def test_a_call_that_needs_no_server_ends_no_outage(
    server: LocalRedis, name: str, outage: tuple[Outage, list[str]]
) -> None:
    """As one about items that are in the local cache."""
    away, backs = outage
    with a_store(server, name, away) as store, ThreadPoolExecutor(1) as thread:
        server.kill()
        waiting = thread.submit(away.wait_for, partial(store.add, "b"))
        while not away.is_on:
            time.sleep(0.01)
        assert not away.wait_for(partial(store.add, "a"))
        was_on = away.is_on
        server.restart()
        assert waiting.result()
    assert (True, False, ["back"]) == (was_on, away.is_on, backs)


def test_a_try_that_fails_late_begins_no_outage(
    server: LocalRedis, name: str, outage: tuple[Outage, list[str]]
) -> None:
    """It began before the server was back, as another call knows already."""
    away, backs = outage
    tries, is_back = list[str](), threading.Event()

    def late() -> bool:
        tries.append("a try")
        if len(tries) > 1:
            return store.add("b")
        is_back.wait()
        with redis.Redis.from_url(UNREACHABLE) as client:
            return bool(client.ping())

    with a_store(server, name, away) as store, ThreadPoolExecutor(1) as thread:
        trying = thread.submit(away.wait_for, late)
        while not tries:
            time.sleep(0.01)
        away.wait_for(partial(store.add, "c"))
        is_back.set()
        assert trying.result()
    assert (False, []) == (away.is_on, backs)


@pytest.mark.parametrize("limit", [5.0, 0.0])
def test_a_try_within_the_limit_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    """It ended later, because the process was frozen; with the limit 0, there is no other try."""
    away, tries = Outage("REDIS_URL", limit, lambda: False, lambda: None), list[int]()
    away.answered()

    def call() -> str:
        tries.append(1)
        if len(tries) == 2:
            later = time.monotonic() + 3600
            monkeypatch.setattr("time.monotonic", lambda: later)
        if len(tries) <= 2:
            raise redis.ConnectionError("lost")
        return "done"

    if limit:
        assert "done" == away.wait_for(call)
    else:
        with pytest.raises(redis.ConnectionError, match="lost"):
            away.wait_for(call)


def test_an_idle_crawl_waits_for_the_server(server: LocalRedis, start: Any, tmp_path: Path) -> None:
    """To mark its pages."""
    with without_its_server(server, start, tmp_path) as crawl:
        assert crawl.is_running
        server.restart()
        ended = result(crawl)
    assert ("finished", 5) == (ended["finish_reason"], ended["stats"]["tbloom/done"])


class HandsIn(crawls.Part):
    """Hands in pages 6 to 11, one whenever the crawl is idle."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.pages = iter(range(6, 12))
        crawler.signals.connect(self.idle, signals.spider_idle)

    def idle(self, spider: Any) -> None:
        for page in self.pages:
            self.crawler.engine.crawl(Request(f"{spider.site}{page}"))
            raise DontCloseSpider


@ADDONS
def test_a_spider_idle_handler_hands_in_requests_during_an_outage(
    server: LocalRedis, start: Any, tmp_path: Path, *, settings: dict[str, Any]
) -> None:
    """scrapy-redis#167: its handler raises ConnectionError."""
    with a_site(pages=6, held=8) as site:
        crawl = start(site, {**settings, "EXTENSIONS": {HandsIn: 1}})
        wait_for(8, site, crawl)
        server.kill()
        site.opened.set()
        wait_for_outage(crawl, tmp_path)
        server.restart()
        ended = result(crawl)
    assert ("finished", []) == (ended["finish_reason"], ended["errors"])
    assert dict.fromkeys(range(12), 1) == site.fetched


class FailsOnce(Page):
    """Page 1 fails when it is first asked for."""

    def get(self) -> None:
        self.server.fetched[self.path] += 1
        self.answer(500 if self.path == "/1" and self.server.fetched["/1"] == 1 else 200)


@LONG
@pytest.mark.parametrize("number", range(3, 8))
def test_an_outage_at_the_start_leaves_no_failed_page_behind(
    server: LocalRedis, start: Any, tmp_path: Path, number: int
) -> None:
    """Whichever call meets it."""

    def choose(call: int) -> None:
        if call == number:
            server.kill()

    with (
        served(FailsOnce, pages=2, fetched=Counter()) as site,
        Proxy(server.url, choose) as proxy,
    ):
        assert "finished" == result(start(site, DONE))["finish_reason"]
        site.pages = 1  # nothing links to page 1 any more
        crawl = start(site, {**DONE, "REDIS_URL": proxy.url})
        wait_for_outage(crawl, tmp_path)
        server.restart()
        assert "finished" == result(crawl)["finish_reason"]
    assert {"/0": 2, "/1": 2} == site.fetched


class Held(Handler):
    """Some pages wait until the test has opened them."""

    def get(self) -> None:
        site, number = self.server, int(self.path[1:])
        site.asked[number] += 1
        if number in site.doors:
            site.doors[number].wait()
        self.answer(200)


def test_a_page_that_has_killed_a_crawler_delays_no_end(
    server: LocalRedis, start: Any, name: str, tmp_path: Path
) -> None:
    """bullmq#2430: its response waits until Redis has counted this crawler, too."""
    doors = [threading.Event(), threading.Event()]
    with served(Held, pages=10, doors=dict(enumerate(doors, 20)), asked=Counter()) as site:
        with TimeBloom.from_url(server.url, name, capacity=10_000) as other:
            for deaths, page in enumerate(site.doors):
                request = Request(f"{site.url}/{page}")
                text = (
                    f'{fingerprint(request).hex()}\n{{"url": "{request.url}", "callback": "parse"}}'
                )
                other.push(fingerprint(request), Note(text, "tree", deaths=deaths))
        crawl = start(site, DONE)
        while not site.asked.keys() >= site.doors.keys():
            time.sleep(0.01)
        server.kill()
        doors[0].set()  # it is done, and can't be committed
        wait_for_outage(crawl, tmp_path)
        doors[1].set()
        time.sleep(0.5)  # until the response is there
        crawl.send_signal(signal.SIGTERM)
        ended = result(crawl)
    assert "shutdown" == ended["finish_reason"]


def test_a_server_that_then_refuses_calls_ends_the_crawl(
    server: LocalRedis, start: Any, tmp_path: Path
) -> None:
    """With a line that says why."""
    with without_its_server(server, start, tmp_path) as crawl:
        server._options += ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-evalsha")
        server.restart()
        ended = result(crawl)
        assert "tbloom_error" == ended["finish_reason"]
        assert "permissions" in ended["errors"][-1]


def test_an_outage_takes_no_request_out_of_a_job(
    server: LocalRedis, start: Any, tmp_path: Path
) -> None:
    """Though the claims of an earlier crawl have no notes, and the crawl ends before it has asked about its requests."""
    settings = {**DONE, "JOBDIR": str(tmp_path / "job"), "TBLOOM_TAKE_OVER": False}
    with a_site(pages=60) as site:
        result(start(site, {**settings, "CLOSESPIDER_PAGECOUNT": 10}))
        assert site.fetched.total() < 60
        with Proxy(server.url, lambda number: Fault.CUT_REQUEST if number > 3 else None) as proxy:
            away = {"REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0.5}
            ended = result(start(site, {**settings, **away}))
        assert "tbloom_error" == ended["finish_reason"]
        assert ended["stats"]["scheduler/dequeued"] > 0
        assert "finished" == result(start(site, settings))["finish_reason"]
        assert {*range(60)} == site.fetched.keys()


class FullDisk(Scheduler):
    """Takes the start page, and writes no request."""

    def enqueue_request(self, request: Request) -> bool:
        if request.dont_filter:
            return super().enqueue_request(request)
        raise OSError(errno.ENOSPC, f"no room for {request}")


@pytest.mark.parametrize("pages", [2, pytest.param(60, marks=LONG)])
def test_a_crawl_ends_though_its_job_takes_nothing_back(
    server: LocalRedis, start: Any, tmp_path: Path, pages: int
) -> None:
    """scrapy#4106: without a server and on a full disk, whose pages are left to the next crawl, with the notes of their claims."""
    settings = {**DONE, "JOBDIR": str(tmp_path / "job")}
    with a_site(pages=pages) as site:
        result(start(site, {**settings, "CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1}))
        assert site.fetched.total() < pages
        with Proxy(server.url, lambda number: Fault.CUT_REQUEST if number > 3 else None) as proxy:
            away = {"REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0.5, "SCHEDULER": FullDisk}
            ended = result(start(site, {**settings, **away}))
        assert "tbloom_error" == ended["finish_reason"]
        assert ended["stats"]["scheduler/dequeued"] > 0
        assert "finished" == result(start(site, settings))["finish_reason"]
        assert {*range(pages)} == site.fetched.keys()


def test_the_log_says_again_that_the_server_is_away(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here with each try; otherwise once a minute."""
    monkeypatch.setattr("tbloom.scrapy.outage._SAID_EVERY", 0.0)
    monkeypatch.setattr("tbloom.scrapy.outage.PAUSE", 0.0)
    caplog.set_level(logging.INFO, "tbloom")
    dead, back = redis.Redis.from_url(UNREACHABLE, retry=None), list[bool]()
    away = Outage("REDIS_URL", None, lambda: False, lambda: back.append(True))
    away.answered()
    tries = iter([dead, dead, dead, client])
    assert away.wait_for(lambda: next(tries).ping())
    assert (3, True) == (caplog.text.count(AWAY), away.is_on)
    away.answered()
    assert (1, [True]) == (caplog.text.count("the server answers again"), back)


@LONG
def test_a_crawl_with_scrapy_redis_queue_survives_an_outage(
    server: LocalRedis, start: Any, tmp_path: Path
) -> None:
    """Scrapy logs an exception whenever the queue asks meanwhile."""
    queue = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}
    with a_site(pages=100, held=30) as site:
        crawl = start(site, {**SCHEDULED, **queue})
        wait_for(30, site, crawl)
        server.kill()
        site.opened.set()
        while crawl.is_running and "Exception in callback" not in (tmp_path / "log").read_text():
            time.sleep(0.02)
        server.restart()
        assert "finished" == result(crawl)["finish_reason"]
