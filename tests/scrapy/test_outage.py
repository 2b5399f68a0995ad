"""``TBLOOM_ON_ERROR``: a crawl that asks a dead server is answered at once, and again by the server once it is back."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tbloom.scrapy.outage import CrawlBloom, CrawlExact
from tests.helpers.killable import Killable
from tests.helpers.making import missing
from tests.helpers.proxy import LossyProxy, Proxy
from tests.helpers.servers import BINARIES

#: What add, contains and claim answer.
ANSWERS = {"schedule": (True, False, Claim.NEW), "drop": (False, True, Claim.SEEN)}
POLICIES = pytest.mark.parametrize("policy", ANSWERS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killable]:
    if "redis-server" not in BINARIES:
        missing("redis-server")
    with Killable(BINARIES["redis-server"], tmp_path, "--appendonly", "yes") as server:
        yield server


@POLICIES
@pytest.mark.parametrize("store", [CrawlBloom, CrawlExact])
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
    new, seen_before, claim = ANSWERS[policy]
    with store.from_url(server.url, name, on_error=policy, retry_for=0) as seen:
        circuit = seen.circuit
        assert seen.add("before")
        server.kill()
        for i in range(10):
            assert new is seen.add("before")
            assert seen_before is seen.contains("before")
            if store is CrawlBloom:
                assert claim is seen.claim(f"one {i}")
                assert [claim] == seen.claim_many([f"one of many {i}"])
                seen.commit_many(["work done meanwhile"])
        assert (1, 50 if store is CrawlBloom else 20) == (circuit.errors, circuit.answers)
        with pytest.raises(redis.ConnectionError):
            seen.info()  # there is no policy for what it would say
        server.restart()
        assert new is seen.add("before")  # not asked yet
        circuit._next_try = 0.0  # the time is over
        assert not seen.add("before")
        assert seen.contains("before")
        assert not circuit.is_open
    said = [record.getMessage() for record in caplog.records if "filter" in record.getMessage()]
    assert 2 == len(said)
    assert "does not answer; items are taken for" in said[0]
    assert "answers again" in said[1]


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
            on_error="schedule",
            retry_for=0,
            cache_size=10,
        ) as seen,
    ):
        seen.add("cached")
        process = server.process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert [True] * 1000 == [seen.add("a") for _ in range(1000)]
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
    monkeypatch.setattr("tbloom.scrapy.outage.HOLD_OFF", 0.0)
    with CrawlBloom.from_url(url, name, capacity=1, grow=False, on_error="drop") as ours:
        ours.add("fills the slice")
        ours.circuit.failed(redis.ConnectionError())
        with pytest.raises(FilterFull):
            ours.add("b")
        assert not ours.circuit.is_open


def test_an_item_called_new_by_policy_is_not_new_again(url: str, name: str) -> None:
    """Its lost answer was "new" too; the server's next one counts."""
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        CrawlBloom.from_url(proxy.url, name, on_error="schedule", retry_for=0) as ours,
    ):
        ours.contains("parameters")
        assert ours.add("a")
        ours.circuit.worked()
        assert not ours.add("a")
        assert (1, 1) == (proxy.lost, ours.circuit.answers)


def test_a_claim_called_new_by_policy_stays_claimed(url: str, name: str) -> None:
    """The claim reached the server, the reply did not, and the policy answers "new": no other process gets it."""
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        CrawlBloom.from_url(
            proxy.url, name, on_error="schedule", retry_for=0, session_ttl=1
        ) as ours,
        TimeBloom.from_url(url, name) as theirs,
    ):
        ours.contains("parameters")
        assert Claim.NEW is ours.claim("a", note="the work")
        for _ in range(10):
            time.sleep(0.2)
            assert Claim.BUSY is theirs.claim("a")
            assert [] == theirs.take_over()
