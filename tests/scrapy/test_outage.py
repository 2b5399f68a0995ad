"""What a crawl does while its server is away, and when it is back."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from tbloom.scrapy.stores import CrawlBloom, Outage
from tests.helpers import crawl as crawls
from tests.helpers.forked import Forked
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.projects import asked, site_of
from tests.helpers.proxy import FOR_TWEMPROXY, Fault, Proxy, Twemproxy
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY, UNREACHABLE
from tests.helpers.website import Server

LONG, AWAY = pytest.mark.check, "the server does not answer since"


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    with LocalRedis(needed(), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@contextmanager
def a_site(held: int = 10**9, **more: Any) -> Iterator[Server]:
    """A site that answers ``held`` requests; the others wait until the test has opened it."""
    with site_of(hold=lambda _, place: place >= held and site.opened.wait(), **more) as site:
        yield site


def once(pages: int) -> dict[str, int]:
    return dict.fromkeys(map(str, range(pages)), 1)


@dataclass
class Crawl:
    """A crawl of a tree, in a process of its own."""

    site: Server
    log: Path
    process: Forked

    def fetches(self, pages: int) -> None:
        """Return once the site was asked for so many pages."""
        while len(self.site.asked) < pages and self.process.is_running:
            time.sleep(0.01)

    def says(self, words: str = AWAY) -> None:
        """Return once the log has these words, or the crawl has ended."""
        while self.process.is_running and words not in self.log.read_text():
            time.sleep(0.02)

    def end(self) -> dict[str, Any]:
        """Return what the crawl says when it ends."""
        ended: dict[str, Any] = self.process.result()
        lines = ended["log"].splitlines()
        return ended | {
            "errors": [line for line in lines if line.startswith(("ERROR", "CRITICAL"))]
        }


@pytest.fixture
def start(server: LocalRedis, name: str, tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    """Starts a crawl of a tree of so many pages."""
    started: list[Crawl] = []

    def start(
        site: Server, settings: dict[str, Any], pages: int = 10**9, *, soon: bool = False
    ) -> Crawl:
        own = {
            # Soon, it finds out that the server does not answer.
            "REDIS_URL": f"{server.url}{'?socket_timeout=1' * soon}",
            "TBLOOM_KEY": name,
            "TBLOOM_CAPACITY": 10_000,
            "LOG_FILE": str(tmp_path / "log"),
            **settings,
        }
        Path(own["LOG_FILE"]).touch()
        tree = crawls.start("tree", f"{site.url}/", own, size=pages, fetched_file=os.devnull)
        started.append(Crawl(site, Path(own["LOG_FILE"]), tree))
        return started[-1]

    yield start
    for crawl in started:
        crawl.process.kill()


FINISHED: tuple[str, list[str]] = "finished", []


def ended(crawl: Crawl) -> tuple[str, list[str]]:
    """How a crawl ends, and its errors."""
    end = crawl.end()
    return end["finish_reason"], end["errors"]


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        pytest.param(DONE, "killed", id="done, killed"),
        pytest.param(SCHEDULED, "stopped", id="scheduled, stopped", marks=LONG),
    ],
)
def test_while_the_server_is_away_the_crawl_waits(
    server: LocalRedis, start: Any, name: str, settings: dict[str, Any], how: str
) -> None:
    """Then it goes on: each page is fetched once, and marked. scrapy-redis#108 asks for it."""
    assert server.process is not None
    stop, go_on = server.kill, server.restart
    if how == "stopped":
        stop, go_on = (
            partial(server.process.send_signal, each) for each in (signal.SIGSTOP, signal.SIGCONT)
        )  # type: ignore[assignment]
    with a_site(held=30) as site:
        crawl = start(site, settings, 300, soon=how == "stopped")
        crawl.fetches(30)
        stop()
        site.opened.set()
        crawl.says()
        assert crawl.process.is_running
        go_on()
        end = crawl.end()
        items = [fingerprint(Request(f"{site.url}/{page}")) for page in range(1, 300)]
    assert once(300) == asked(site)
    assert FINISHED == (end["finish_reason"], end["errors"])
    outages = end["stats"]["tbloom/outages"]  # on a busy machine, perhaps more than one
    assert 1 <= outages == end["log"].count(AWAY) == end["log"].count("answers again")
    with TimeBloom.from_url(server.url, name, capacity=10_000) as seen:
        assert [True] * 299 == seen.contains_many(items)
        assert not seen.client.exists(f"{{{name}}}:claims")


@LONG
def test_a_crawl_behind_twemproxy_waits_and_ends(server: LocalRedis, start: Any) -> None:
    """It knows neither TIME nor INFO, and says that its server is away by an error without a code (ioredis#573)."""
    with a_site(held=30) as site, Twemproxy(server.url) as proxy:
        crawl = start(site, {**DONE, "REDIS_URL": proxy.url, "REDIS_PARAMS": FOR_TWEMPROXY}, 60)
        crawl.fetches(30)
        server.kill()
        site.opened.set()
        crawl.says()
        server.restart()
        end = crawl.end()
    assert FINISHED == (end["finish_reason"], end["errors"])
    assert (once(60), 59) == (asked(site), end["stats"]["tbloom/done"])


#: What a server refuses writes with, how it is made to, and how it is mended.
REFUSALS = {
    "OOM": ("maxmemory", 1, 0, "the server's memory is full: raise its maxmemory"),
    "MISCONF": ("save", "3600 1", "", "make room on the server's disk"),
}
NO_ROOM = "crawl waits for room"


@contextmanager
def refusing_writes(server: LocalRedis, refusal: str) -> Iterator[None]:
    """Lets the server refuse writes, within a block."""
    name, worse, better, _ = REFUSALS[refusal]
    with redis.Redis.from_url(server.url) as client:
        client.config_set(name, worse)
        if refusal == "MISCONF":  # it can't save: a folder has the name of the file
            (server.folder / "dump.rdb").rename(server.folder / "saved")
            (server.folder / "dump.rdb").mkdir()
            client.bgsave()
            while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
                time.sleep(0.01)
        yield
        client.config_set(name, better)


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        pytest.param(SCHEDULED, None, id="scheduled", marks=LONG),
        pytest.param(DONE, None, id="done"),
        pytest.param(SCRAPY, None, id="dupefilter alone", marks=LONG),
        pytest.param(SCHEDULED, "OOM", id="scheduled, refused", marks=LONG),
        pytest.param(DONE, "OOM", id="done, refused"),
    ],
)
def test_after_the_limit_an_outage_ends_the_crawl(
    server: LocalRedis, start: Any, settings: dict[str, Any], refusal: str | None
) -> None:
    """Without the add-on, there is always one."""
    with a_site() as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 1})
        crawl.fetches(30)
        with refusing_writes(server, refusal) if refusal else nullcontext(server.kill()):
            end = crawl.end()
    assert "tbloom_error" == end["finish_reason"]
    [error] = end["errors"]
    if refusal:
        assert AWAY not in end["log"]
        assert REFUSALS[refusal][-1] in error
        return
    assert f"The crawl ends: REDIS_URL is {server.url}: " in error
    assert "Traceback" not in end["log"]
    assert "the commits of" not in end["log"]  # pages are counted once
    unmarked = re.findall(r"(\d+) pages were fetched and not marked", end["log"])
    followed = len(site.asked) - 1  # the filter is not asked for the start page
    marked = end["stats"].get("tbloom/done", 0)
    assert unmarked == ([str(followed - marked)] if settings is DONE else [])


@pytest.mark.parametrize(
    ("settings", "signals", "how"),
    [
        (SCHEDULED, 1, signal.SIGKILL),
        (DONE, 2, signal.SIGKILL),
        pytest.param(SCHEDULED, 1, signal.SIGSTOP, marks=LONG),
        pytest.param(DONE, 2, signal.SIGSTOP, marks=LONG),
    ],
)
def test_a_signal_ends_the_wait(
    server: LocalRedis, start: Any, settings: dict[str, Any], signals: int, how: signal.Signals
) -> None:
    """And so do two. It would never end otherwise."""
    assert server.process is not None
    with a_site() as site:
        crawl = start(site, settings, soon=how == signal.SIGSTOP)
        crawl.fetches(30)
        server.process.send_signal(how)
        crawl.says()
        for _ in range(signals):
            crawl.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        reason, errors = ended(crawl)
    # None: the reactor stops before the crawl is closed, at a second signal, and at a first one where it closes already.
    assert reason in ("tbloom_error", "shutdown", None)
    assert len(errors) <= 1


def test_a_signal_at_the_start_says_why_nothing_was_fetched(server: LocalRedis, start: Any) -> None:
    """Scrapy ends its event loop then."""
    told = threading.Event()

    def choose(_: int) -> Fault:
        told.wait()
        return Fault.CUT_REQUEST

    with a_site(held=0) as site, Proxy(server.url, choose) as proxy:
        url = f"{proxy.url}?socket_timeout=600"
        crawl = start(site, {**DONE, "REDIS_URL": url, "TBLOOM_RETRY_FOR": 1})
        while crawl.process.is_running and not proxy.calls:
            time.sleep(0.01)
        crawl.process.send_signal(signal.SIGTERM)
        crawl.says("Received SIGTERM")
        time.sleep(0.5)  # Scrapy logs the signal before it tells the crawl to end
        told.set()
        crawl.process.result()
    said = crawl.log.read_text()
    [line] = [line for line in said.splitlines() if "fetched no page" in line]
    assert f"REDIS_URL is {proxy.url}" in line
    assert "Traceback" not in said


def test_the_next_crawl_fetches_requests_that_were_not_asked_about(
    server: LocalRedis, start: Any
) -> None:
    """With TBLOOM_MARK = "done": a page whose links could not be asked for is not marked."""
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    with a_site(held=5) as site:
        crawl = start(site, {**settings, "CONCURRENT_REQUESTS": 1}, 60)
        crawl.fetches(5)
        server.kill()
        site.opened.set()
        assert "tbloom_error" == ended(crawl)[0]
        server.restart()
        assert "finished" == ended(start(site, settings, 60))[0]
    assert once(60).keys() == asked(site).keys()


def test_a_page_whose_redirect_gets_no_answer_is_unfinished(server: LocalRedis, start: Any) -> None:
    """Its redirect is in no circle, and leads to no login. The next crawl fetches it."""
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    with a_site(held=3, answers={f"/{number}": [f"/{number}00"] for number in (3, 4, 5)}) as site:
        crawl = start(site, settings, 6)
        crawl.fetches(6)
        server.kill()
        site.opened.set()
        stats = crawl.end()["stats"]
    assert stats["tbloom/left"] >= 3
    assert "tbloom/failed" not in stats
    assert "dupefilter/filtered" not in stats


@contextmanager
def without_its_server(server: LocalRedis, start: Any, settings: Any) -> Iterator[Crawl]:
    """A crawl that has fetched all six pages, half of them after its server was killed."""
    with a_site(held=3) as site:
        crawl = start(site, settings, 6)
        crawl.fetches(3)
        server.kill()
        site.opened.set()
        crawl.fetches(6)
        yield crawl


def test_a_crawl_that_needs_no_answer_ends_without_its_server(
    server: LocalRedis, start: Any
) -> None:
    """Its stats have no size of the window."""
    with without_its_server(server, start, SCHEDULED) as crawl:
        end = crawl.end()
    assert FINISHED == (end["finish_reason"], end["errors"])
    assert (6, None) == (len(crawl.site.asked), end["stats"].get("tbloom/window/items"))


@pytest.mark.parametrize("refuses", [False, True])
def test_an_idle_crawl_waits_for_the_server(
    server: LocalRedis, start: Any, *, refuses: bool
) -> None:
    """To mark its pages. If the server then refuses its calls, a line says why the crawl ends."""
    with without_its_server(server, start, DONE) as crawl:
        crawl.says()
        assert crawl.process.is_running
        rights = ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-evalsha")
        server._options += rights if refuses else ()
        server.restart()
        end = crawl.end()
    if refuses:
        assert ("tbloom_error", True) == (end["finish_reason"], "permissions" in end["errors"][-1])
    else:
        assert ("finished", 5) == (end["finish_reason"], end["stats"]["tbloom/done"])


@pytest.mark.parametrize("refusal", ["OOM", pytest.param("MISCONF", marks=LONG)])
def test_a_fleet_waits_while_its_server_refuses_writes(
    server: LocalRedis, start: Any, tmp_path: Path, refusal: str
) -> None:
    """sidekiq#5558, channels_redis#118: then each page is fetched once. One line of each crawler says what to do."""
    logs = [tmp_path / name for name in "abc"]
    with a_site(held=30) as site:
        crawlers = [start(site, {**DONE, "LOG_FILE": str(log)}, 300) for log in logs]
        for crawl in crawlers:
            crawl.fetches(30)
        with refusing_writes(server, refusal):
            site.opened.set()
            while not any(NO_ROOM in log.read_text() for log in logs):
                time.sleep(0.02)
            time.sleep(1)
            assert all(crawl.process.is_running for crawl in crawlers)
        ends = [crawl.end() for crawl in crawlers]
    assert {**once(300), "0": 3} == asked(site)  # each starts with page 0
    assert [FINISHED] * 3 == [(end["finish_reason"], end["errors"]) for end in ends]
    assert 299 == sum(end["stats"].get("tbloom/done", 0) for end in ends)
    lines = [line for log in logs for line in log.read_text().splitlines() if NO_ROOM in line]
    assert {True} == {REFUSALS[refusal][-1] in line for line in lines}


def test_a_crawl_begins_once_its_server_has_room(server: LocalRedis, start: Any) -> None:
    with a_site() as site:
        with refusing_writes(server, "OOM"):
            crawl = start(site, DONE, 30)
            crawl.says(NO_ROOM)
        assert FINISHED == ended(crawl)
    assert once(30) == asked(site)


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


@pytest.mark.parametrize(
    "settings",
    [pytest.param(SCHEDULED, id="scheduled", marks=LONG), pytest.param(DONE, id="done")],
)
def test_a_spider_idle_handler_hands_in_requests_during_an_outage(
    server: LocalRedis, start: Any, settings: dict[str, Any]
) -> None:
    """scrapy-redis#167: its handler raises ConnectionError."""
    with a_site(held=8) as site:
        crawl = start(site, {**settings, "EXTENSIONS": {HandsIn: 1}}, 6)
        crawl.fetches(8)
        server.kill()
        site.opened.set()
        crawl.says()
        server.restart()
        assert FINISHED == ended(crawl)
    assert once(12) == asked(site)


@LONG
@pytest.mark.parametrize("number", range(3, 8))
def test_an_outage_at_the_start_leaves_no_failed_page_behind(
    server: LocalRedis, start: Any, number: int
) -> None:
    """Whichever call meets it."""

    def choose(call: int) -> None:
        if call == number:
            server.kill()

    with a_site(answers={"/1": [500, 200]}) as site, Proxy(server.url, choose) as proxy:
        assert "finished" == ended(start(site, DONE, 2))[0]
        # Nothing links to page 1 any more.
        crawl = start(site, {**DONE, "REDIS_URL": proxy.url}, 1)
        crawl.says()
        server.restart()
        assert "finished" == ended(crawl)[0]
    assert {"0": 2, "1": 2} == asked(site)


def test_a_page_that_has_killed_a_crawler_delays_no_end(
    server: LocalRedis, start: Any, name: str
) -> None:
    """bullmq#2430: its response waits until Redis has counted this crawler, too."""
    doors = {f"/{number}": threading.Event() for number in (20, 21)}
    with site_of(hold=lambda path, _: path in doors and doors[path].wait()) as site:
        with TimeBloom.from_url(server.url, name, capacity=10_000) as other:
            for deaths, page in enumerate(doors):
                item = fingerprint(Request(f"{site.url}{page}"))
                fields = f'{{"url": "{site.url}{page}", "callback": "parse"}}'
                other.push(item, Note(f"{item.hex()}\n{fields}", "tree", deaths=deaths))
        crawl = start(site, DONE, 10)
        while not {"20", "21"} <= asked(site).keys():
            time.sleep(0.01)
        server.kill()
        doors["/20"].set()  # it is done, and can't be committed
        crawl.says()
        doors["/21"].set()
        time.sleep(0.5)  # until the response is there
        crawl.process.send_signal(signal.SIGTERM)
        assert "shutdown" == ended(crawl)[0]


class FullDisk(Scheduler):
    """Takes the start page, and writes no request."""

    def enqueue_request(self, request: Request) -> bool:
        if request.dont_filter:
            return super().enqueue_request(request)
        raise OSError(errno.ENOSPC, f"no room for {request}")


@pytest.mark.parametrize(
    ("pages", "first", "then"),
    [
        pytest.param(60, 10, {"TBLOOM_TAKE_OVER": False}, id="without notes", marks=LONG),
        pytest.param(2, 1, {"SCHEDULER": FullDisk}, id="on a full disk"),
    ],
)
def test_an_outage_takes_no_request_out_of_a_job(
    server: LocalRedis, start: Any, tmp_path: Path, *, pages: int, first: int, then: dict[str, Any]
) -> None:
    """Though the claims of an earlier crawl have no notes, and the crawl ends before it has asked about its requests; and on a full
    disk (scrapy#4106), because the pages are left to the next crawl, with the notes of their claims."""
    settings = {**DONE, "JOBDIR": str(tmp_path / "job")}
    settings |= {name: value for name, value in then.items() if name != "SCHEDULER"}
    with a_site() as site:
        stops = {"CLOSESPIDER_PAGECOUNT": first, "CONCURRENT_REQUESTS": min(first, 8)}
        start(site, {**settings, **stops}, pages).end()
        assert len(site.asked) < pages
        with Proxy(server.url, lambda number: Fault.CUT_REQUEST if number > 3 else None) as proxy:
            away = {"REDIS_URL": proxy.url, "TBLOOM_RETRY_FOR": 0.5, **then}
            end = start(site, {**settings, **away}, pages).end()
        assert "tbloom_error" == end["finish_reason"]
        assert end["stats"]["scheduler/dequeued"] > 0
        assert "finished" == ended(start(site, settings, pages))[0]
    assert once(pages).keys() == asked(site).keys()


@LONG
def test_a_crawl_with_scrapy_redis_queue_survives_an_outage(server: LocalRedis, start: Any) -> None:
    """Scrapy logs an exception whenever the queue asks meanwhile."""
    queue = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}
    with a_site(held=30) as site:
        crawl = start(site, {**SCHEDULED, **queue}, 100)
        crawl.fetches(30)
        server.kill()
        site.opened.set()
        crawl.says("Exception in callback")
        server.restart()
        assert "finished" == ended(crawl)[0]


@pytest.fixture
def store(server: LocalRedis, name: str) -> Iterator[CrawlBloom]:
    """A crawl's store, which has "a" in its local cache, and an outage that notes when the server is back."""
    client = redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))
    backs = list[str]()
    outage = Outage("REDIS_URL", 100, bool, partial(backs.append, "back"))
    with CrawlBloom(client, name, capacity=1000, cache_size=10, outage=outage) as store:
        store.backs, store.outage = backs, outage  # type: ignore[attr-defined]
        outage.wait_for(partial(store.add, "a"))
        yield store


def test_a_call_that_needs_no_server_ends_no_outage(server: LocalRedis, store: Any) -> None:
    """As one about items that are in the local cache."""
    away = store.outage
    with ThreadPoolExecutor(1) as thread:
        server.kill()
        waiting = thread.submit(away.wait_for, partial(store.add, "b"))
        while not away.is_on:
            time.sleep(0.01)
        assert not away.wait_for(partial(store.add, "a"))
        was_on = away.is_on
        server.restart()
        assert waiting.result()
    assert (True, False, ["back"]) == (was_on, away.is_on, store.backs)


def test_a_try_that_fails_late_begins_no_outage(store: Any) -> None:
    """It began before the server was back, as another call knows already."""
    tries, is_back = list[str](), threading.Event()

    def late() -> Any:
        tries.append("a try")
        if len(tries) > 1:
            return store.add("b")
        is_back.wait()
        with redis.Redis.from_url(UNREACHABLE) as client:
            return client.ping()

    with ThreadPoolExecutor(1) as thread:
        trying = thread.submit(store.outage.wait_for, late)
        while not tries:
            time.sleep(0.01)
        store.outage.wait_for(partial(store.add, "c"))
        is_back.set()
        assert trying.result()
    assert (False, []) == (store.outage.is_on, store.backs)


@pytest.mark.parametrize("limit", [5.0, 0.0])
def test_a_try_within_the_limit_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    """It ended later, because the process was frozen; with the limit 0, there is no other try."""
    away, moments = Outage("REDIS_URL", limit, bool, bool), iter([0, 3600])
    away.answered()

    def call() -> str:
        for later in moments:
            now = time.monotonic() + later
            if later:
                monkeypatch.setattr("time.monotonic", partial(float, now))
            raise redis.ConnectionError("lost")
        return "done"

    if limit:
        assert "done" == away.wait_for(call)
    else:
        with pytest.raises(redis.ConnectionError, match="lost"):
            away.wait_for(call)


def test_the_log_says_again_that_the_server_is_away(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here with each try; otherwise once a minute."""
    monkeypatch.setattr("tbloom.scrapy.stores._SAID_EVERY", 0.0)
    monkeypatch.setattr("tbloom.scrapy.stores.PAUSE", 0.0)
    caplog.set_level(logging.INFO, "tbloom")
    dead, back = redis.Redis.from_url(UNREACHABLE, retry=None), list[bool]()
    away = Outage("REDIS_URL", None, lambda: False, lambda: back.append(True))
    away.answered()
    tries = iter([dead, dead, dead, client])
    assert away.wait_for(lambda: next(tries).ping())
    assert (3, True) == (caplog.text.count(AWAY), away.is_on)
    away.answered()
    assert (1, [True]) == (caplog.text.count("the server answers again"), back)
