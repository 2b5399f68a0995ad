"""``TBLOOM_ON_ERROR``: what a crawl does while its server is away, and when it is back."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.utils.request import fingerprint
from typing_extensions import Self

from tbloom import Claim, FilterFull, TimeBloom
from tbloom.scrapy.stores import CrawlBloom, CrawlExact
from tests.helpers.forked import Started
from tests.helpers.killable import Killable
from tests.helpers.making import missing
from tests.helpers.proxy import LossyProxy, Proxy
from tests.helpers.schedulers import ADDON, SCRAPY, UNREACHABLE
from tests.helpers.servers import BINARIES, Clockwork
from tests.helpers.website import Server

POLICIES = pytest.mark.parametrize("policy", ["schedule", "drop"])
DONE = {**ADDON, "TBLOOM_MARK": "done"}
LONG = pytest.mark.check
MODES = pytest.mark.parametrize(
    "settings",
    [ADDON, pytest.param(SCRAPY, marks=LONG), DONE],
    ids=["add-on", "dupefilter alone", "done"],
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killable]:
    if "redis-server" not in BINARIES:
        missing("redis-server")
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with Killable(BINARIES["redis-server"], tmp_path, *options) as server:
        yield server


@pytest.fixture(autouse=True)
def _is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test says so, however long the machine stands still."""
    monkeypatch.setattr("tbloom.scrapy.circuit.HOLD_OFF", 3600.0)


class Site(Server):
    """Pages 0, 1, ... up to ``pages``, each with ``links`` links: page 0 to 1 and 2 if there are two, page 1 to 3 and 4.

    Pages from ``held`` on wait until the test has opened them.
    """

    def __init__(self, links: int = 5, pages: int = 10**9, held: int = 10**9) -> None:
        self.fetched = fetched = Counter[int]()
        self.opened = opened = threading.Event()

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = int(self.path[1:])
                if number >= held:
                    opened.wait(100)
                linked = range(links * number + 1, links * number + links + 1)
                body = " ".join(str(link % pages) for link in linked).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                fetched[number] += 1

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def wait_for(self, pages: int, crawl: Started) -> None:
        """Waits until so many pages are fetched."""
        while self.fetched.total() < pages and crawl.poll() is None:
            time.sleep(0.01)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()
        self.shutdown()
        self.server_close()


@pytest.fixture
def start(server: Killable, name: str) -> Iterator[Callable[..., Started]]:
    """Starts a crawl of a site in a process of its own."""
    started: list[Started] = []

    def start(site: Site, settings: dict[str, Any]) -> Started:
        own = {"REDIS_URL": server.url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 10_000}
        job = {"spider": "links", "site": site.url, "settings": {**own, **settings}}
        crawl = Started("tests.helpers.crawl", json.dumps(job))
        started.append(crawl)
        return crawl

    yield start
    for crawl in started:
        crawl.kill()


def result(crawl: Started) -> dict[str, Any]:
    """What the crawl says when it ends."""
    said, _ = crawl.communicate()
    ended: dict[str, Any] = json.loads(said)
    ended["errors"] = [
        line for line in ended["log"].splitlines() if line.startswith(("ERROR", "CRITICAL"))
    ]
    return ended


@MODES
@pytest.mark.parametrize("links", [5, pytest.param(500, marks=LONG)])
def test_an_outage_is_waited_for_once_and_ends_the_crawl(
    server: Killable, start: Any, settings: dict[str, Any], links: int
) -> None:
    """By default, whatever number of links is pending."""
    with Site(links) as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 1})
        site.wait_for(30, crawl)
        server.kill()
        ended = result(crawl)
    assert "tbloom_error" == ended["finish_reason"]
    assert 1 == ended["stats"]["tbloom/errors"]
    [error] = ended["errors"]
    assert "the server does not answer, so the crawl ends" in error
    assert "Traceback" not in ended["log"]


@pytest.mark.parametrize(
    "settings", [pytest.param(ADDON, marks=LONG), DONE], ids=["scheduled", "done"]
)
def test_a_signal_ends_the_wait(server: Killable, start: Any, settings: dict[str, Any]) -> None:
    """It would take ten minutes otherwise."""
    with Site() as site:
        crawl = start(site, {**settings, "TBLOOM_RETRY_FOR": 600})
        site.wait_for(30, crawl)
        server.kill()
        time.sleep(2)
        crawl.send_signal(signal.SIGTERM)
        ended = result(crawl)
    assert ended["finish_reason"] in ("tbloom_error", "shutdown")
    assert len(ended["errors"]) <= 1


def test_what_was_not_asked_for_is_fetched_by_the_next_crawl(server: Killable, start: Any) -> None:
    """With TBLOOM_MARK = "done": a page whose links could not be asked for is not marked."""
    settings = {**DONE, "TBLOOM_RETRY_FOR": 0.1, "TBLOOM_SESSION_TTL": 1}
    with Site(pages=60) as site:
        crawl = start(site, {**settings, "CONCURRENT_REQUESTS": 1})
        site.wait_for(5, crawl)
        server.kill()
        assert "tbloom_error" == result(crawl)["finish_reason"]
        server.restart()
        assert "finished" == result(start(site, settings))["finish_reason"]
        assert set(range(60)) == site.fetched.keys()


@MODES
def test_while_the_server_is_away_no_page_is_fetched_twice(
    server: Killable, start: Any, name: str, settings: dict[str, Any]
) -> None:
    """Nor after that: the server is told of all pages before it is asked for another one."""
    settings = {
        **settings,
        "TBLOOM_ON_ERROR": "schedule",
        "TBLOOM_RETRY_FOR": 0.1,
        "CONCURRENT_REQUESTS": 60,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 60,
    }
    with Site(pages=60, held=50) as site:
        crawl = start(site, settings)
        site.wait_for(5, crawl)
        server.kill()
        site.wait_for(50, crawl)
        server.restart()
        site.opened.set()
        ended = result(crawl)
        items = [fingerprint(Request(f"{site.url}{page}")) for page in range(60)]
        assert dict.fromkeys(range(60), 1) == site.fetched
    assert "finished" == ended["finish_reason"]
    assert 1 == len(ended["errors"])
    with TimeBloom.from_url(server.url, name, capacity=10_000) as seen:
        assert [True] * 60 == seen.contains_many(items)
        assert not seen.client.exists(f"{{{name}}}:claims")


@pytest.mark.parametrize("store", [CrawlBloom, CrawlExact])
@POLICIES
def test_the_policy_answers_while_the_server_is_down_and_the_server_after(
    server: Killable,
    name: str,
    caplog: pytest.LogCaptureFixture,
    *,
    store: Any,
    policy: str,
) -> None:
    """It is asked once, and then not for a while; each change is said once."""
    caplog.set_level(logging.INFO, "tbloom")
    is_scheduled = policy == "schedule"
    with store.from_url(server.url, name, on_error=policy, retry_for=0) as seen:
        circuit = seen.circuit
        assert seen.add("before")
        server.kill()
        for first in (True, *[False] * 9):
            assert not seen.add("before")
            assert seen.add("new") is (is_scheduled and first)
            assert seen.contains("before")
            assert not is_scheduled or seen.contains("new")
        assert 1 == circuit.errors
        assert circuit.answers == (1 if is_scheduled else 30)
        with pytest.raises(redis.ConnectionError):
            seen.info()  # there is no policy for what it would say
        server.restart()
        assert not seen.add("before")  # not asked yet
        circuit.try_again()  # the time is over
        assert not seen.add("before")
        assert seen.add("new") is not is_scheduled
        assert not circuit.is_open
    said = [record.getMessage() for record in caplog.records if "filter" in record.getMessage()]
    assert 2 == len(said)
    assert "does not answer, so" in said[0]
    assert "answers again" in said[1]


@pytest.mark.parametrize("store", [CrawlBloom, CrawlExact])
@pytest.mark.parametrize("policy", ["raise", "schedule", "drop"])
def test_too_few_replicas_are_an_outage(store: Any, url: str, name: str, policy: str) -> None:
    slow = {"retry_for": 0, "on_error": policy, "replicas": 1}
    with store.from_url(f"{url}?socket_timeout=0.2", name, **slow) as seen:
        if policy == "raise":
            with pytest.raises(redis.ConnectionError, match="0 of 1 replicas have the answer"):
                seen.add("a")
        else:
            assert [seen.add("a"), seen.add("a")] == [policy == "schedule", False]
            assert seen.circuit.is_open
            seen.circuit.on_error = "drop"  # nothing is handed over


@POLICIES
def test_claims_while_the_server_is_down(server: Killable, name: str, policy: str) -> None:
    """A page in work is a duplicate, a released one is not. The server gets the claims when it is back."""
    new, seen_before = Claim.NEW, Claim.SEEN
    with CrawlBloom.from_url(server.url, name, on_error=policy, retry_for=0) as ours:
        assert [new, new] == ours.claim_many(["held", "done"])
        ours.commit_many(["done"])
        server.kill()
        scheduled = new if policy == "schedule" else seen_before
        assert [seen_before] * 2 == ours.claim_many(["held", "done"])
        assert [scheduled, seen_before] == ours.claim_many(["later", "later"])
        assert scheduled is ours.claim("released", note="work")
        ours.release("released")
        assert scheduled is ours.claim("released", note="work")
        assert scheduled is ours.claim("handed over", previous_owner=ours.session)
        ours.release("held")
        server.restart()
        ours.circuit.try_again()
        assert ours.claim("asked after") is new
        with TimeBloom.from_url(server.url, name) as theirs:
            claimed = Claim.BUSY if policy == "schedule" else new
            assert [claimed] * 2 == theirs.claim_many(["later", "released"])
            assert [seen_before] == theirs.claim_many(["done"])


def test_a_server_that_comes_back_empty_learns_what_the_crawl_has_seen(
    tmp_path: Path, name: str
) -> None:
    if "redis-server" not in BINARIES:
        missing("redis-server")
    with (
        Killable(BINARIES["redis-server"], tmp_path) as server,
        CrawlBloom.from_url(
            server.url, name, on_error="schedule", retry_for=0, cache_size=100_000
        ) as seen,
    ):
        assert [True, False] == [seen.add("before"), seen.add("before")]
        server.kill()
        assert seen.add("meanwhile")
        server.restart()
        seen.circuit.try_again()
        assert seen.add("a")
        with TimeBloom.from_url(server.url, name, shards=1) as theirs:
            assert [False] * 3 == theirs.add_many(["before", "meanwhile", "a"])


def test_what_is_remembered_for_an_outage_is_bounded(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbloom.scrapy.outage.MAX_ASKED", 10)
    with CrawlBloom.from_url(url, name, on_error="schedule", retry_for=0) as seen:
        items = [str(i) for i in range(100)]
        for item in items:
            seen.add(item)
        assert 5 <= len(seen._asked) <= 10
        assert items[-5:] == [*seen._asked][-5:]


@pytest.mark.parametrize(
    ("store", "parameters", "argument", "seconds"),
    [
        (CrawlBloom, {"slices": 3}, None, 3 * 86400),
        (CrawlBloom, {"slices": 3}, 1, 86400),
        (CrawlExact, {"ttl": 60}, None, 61),
        (CrawlExact, {}, 60, 61),
    ],
)
def test_what_has_left_the_window_is_new_without_the_server_too(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    store: Any,
    parameters: dict[str, Any],
    argument: Any,
    seconds: int,
) -> None:
    now = 1_600_000_000_000
    for module in ("outage", "stores"):
        monkeypatch.setattr(f"tbloom.scrapy.{module}.now_ms", lambda: now)
    with store.from_url(UNREACHABLE, name, on_error="schedule", retry_for=0, **parameters) as seen:
        assert [True, False] == [seen.add("a", argument) for _ in range(2)]
        now += seconds * 1000
        assert [True, False] == [seen.add("a", argument) for _ in range(2)]


@POLICIES
def test_what_was_done_while_the_server_was_down_is_marked_later(
    server: Killable, name: str, policy: str
) -> None:
    items = ["claimed before", "never claimed"]
    with CrawlBloom.from_url(server.url, name, on_error=policy, retry_for=0, session_ttl=1) as seen:
        seen.claim("claimed before")
        server.kill()
        for item in items:  # the second is not sent
            seen.commit_many([item])
        server.restart()
        with TimeBloom.from_url(server.url, name) as other:
            while not all(other.contains_many(items)):
                pass


def test_a_server_that_hangs_is_waited_for_once(server: Killable, name: str) -> None:
    """Its time-out is spent on one call, and again on one each HOLD_OFF seconds; not on every one, nor on what is cached."""
    with (
        Proxy(server.url, lambda _: None) as proxy,
        CrawlBloom.from_url(
            f"{proxy.url}?socket_timeout=0.2",
            name,
            on_error="drop",
            retry_for=0,
            cache_size=10,
        ) as seen,
    ):
        seen.add("cached")
        process = server.process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert [False] * 1000 == [seen.add("a") for _ in range(1000)]
            assert not seen.add("cached")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert (1, 1000) == (seen.circuit.errors, seen.circuit.answers)


@POLICIES
def test_an_error_that_does_not_pass_comes_through(
    client: redis.Redis, url: str, name: str, policy: str
) -> None:
    """As does one of another password, or of a user who may not."""
    client.rpush(f"{{{name}}}:config", "x")
    with (
        CrawlBloom.from_url(url, name, on_error=policy) as seen,
        pytest.raises(redis.ResponseError, match="WRONGTYPE"),
    ):
        seen.add("a")


def test_an_error_of_the_filters_own_shows_that_the_server_answers(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbloom.scrapy.circuit.HOLD_OFF", 0.0)
    with CrawlBloom.from_url(url, name, capacity=1, grow=False, on_error="drop") as ours:
        ours.add("fills the slice")
        ours.circuit.failed(redis.ConnectionError())
        with pytest.raises(FilterFull):
            ours.add("b")
        assert not ours.circuit.is_open


def test_an_item_called_new_by_policy_is_not_new_again(url: str, name: str) -> None:
    """Its lost answer was "new" too; the server's next one counts."""
    with (
        LossyProxy(url, lambda number: number == 3) as proxy,
        CrawlBloom.from_url(proxy.url, name, on_error="schedule", retry_for=0) as ours,
    ):
        ours.contains("parameters")
        assert ours.add("a")
        ours.circuit.worked()
        assert not ours.add("a")
        assert (1, 1) == (proxy.lost, ours.circuit.answers)


def test_a_claim_called_new_by_policy_stays_claimed(clockwork: Clockwork, name: str) -> None:
    """The claim reached the server, the reply did not, and the policy answers "new": no other process gets it."""
    with (
        LossyProxy(clockwork.server.url) as proxy,
        CrawlBloom.from_url(
            proxy.url, name, on_error="schedule", retry_for=0, session_ttl=2
        ) as ours,
        TimeBloom.from_url(clockwork.server.url, name) as theirs,
    ):
        ours.add("before")
        proxy.loses_next = True
        assert Claim.NEW is ours.claim("a", note="the work")
        assert 1 == proxy.lost
        for _ in range(5):
            clockwork.pass_a_second(name, ours.session)
            assert Claim.BUSY is theirs.claim("a")
            assert [] == theirs.take_over()
