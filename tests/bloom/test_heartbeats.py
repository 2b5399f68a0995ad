"""Claims, and the work that goes with them, are not lost by what befalls the calls that end or take them over."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tests.helpers import servers
from tests.helpers.flows import flow_of, lose
from tests.helpers.making import needed

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
LIFE = 1.0  # seconds: the shortest that a session may have


def sync(url: str, name: str, **arguments: Any) -> TimeBloom:
    return TimeBloom.from_url(url, name, capacity=1000, **arguments)


async def test_what_is_abandoned_while_others_search_is_found(make: Any) -> None:
    """The search began before; who has died since then is not forgotten at its end."""
    first, second, ours = make(capacity=5000), make(capacity=5000), make(capacity=5000)
    await second.add("the filter's parameters")
    await first.claim_many([f"a {i}" for i in range(1200)], notes=[f"a {i}" for i in range(1200)])
    await second.claim_many([f"b {i}" for i in range(100)], notes=[f"b {i}" for i in range(100)])
    await first.abandon_many([f"a {i}" for i in range(1200)])
    taken = await ours.take_over(700)
    await second.abandon_many([f"b {i}" for i in range(100)])
    while some := await ours.take_over(1000):
        taken += some
    assert 1300 == len(set(taken)) == len(taken)


def test_what_can_not_be_made_up_for_does_not_end_the_session(
    url: str, name: str, client: redis.Redis
) -> None:
    """A commit has failed; made up for, it finds the slice full."""
    with TimeBloom.from_url(url, name, capacity=1, grow=False) as seen:
        assert [NEW, NEW] == seen.claim_many(["mine", "done"])
        failed = flow_of(seen, "commit", "done")
        next(failed)
        failed.close()
        seen.add("fills the slice")
        until = client.hget(f"{{{name}}}:sessions", seen.session)
        while client.hget(f"{{{name}}}:sessions", seen.session) == until:
            with suppress(FilterFull):
                seen._send_heartbeat()


async def test_claims_outlive_a_short_window(make: Any, client: redis.Redis, name: str) -> None:
    """With one slice of a second, the window ends every second; the session lives on."""
    ours, theirs = (make(granularity="1s", slices=1, session_ttl=60) for _ in range(2))
    assert NEW is await ours.claim("a")
    for _ in range(8):
        await asyncio.sleep(0.3)
        assert BUSY is await theirs.claim("a")
    assert client.ttl(f"{{{name}}}:claims") > 60


def test_closing_does_not_wait_for_a_server_that_is_gone(name: str) -> None:
    with servers.local(needed("redis-server")) as client:
        port = client.connection_pool.connection_kwargs["port"]
        seen = sync(f"redis://127.0.0.1:{port}", name, retry_for=3600)
        seen.claim("a")
    seen.close()  # pytest's time-out would end it


def test_the_heartbeat_stops_with_its_object(url: str, name: str) -> None:
    seen = sync(url, name, session_ttl=3600)
    seen.claim("a")
    heartbeat = seen._heartbeat
    assert heartbeat is not None
    del seen
    heartbeat.join(10)
    assert not heartbeat.is_alive()


def test_a_heartbeat_that_fails_does_not_keep_its_object(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does a handler that keeps what is logged, as pytest's does."""
    with servers.local(needed("redis-server")) as client:
        port = client.connection_pool.connection_kwargs["port"]
        seen = sync(f"redis://127.0.0.1:{port}", name, retry_for=0, session_ttl=LIFE)
        seen.claim("a")
    heartbeat = seen._heartbeat
    assert heartbeat is not None
    while "a heartbeat failed" not in caplog.text:
        time.sleep(0.01)
    del seen
    while heartbeat.is_alive():
        gc.collect()
        heartbeat.join(0.1)


def test_threads_that_make_their_first_claims_at_once_start_one_heartbeat(
    url: str, name: str
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(8) as threads:
            for turn in range(20):
                with sync(url, f"{name}:{turn}") as seen:
                    assert 1 == [*threads.map(seen.claim, ["a"] * 8)].count(NEW)
                    names = [thread.name for thread in threading.enumerate()]
                    assert 1 == sum(thread.endswith("(run_in_thread)") for thread in names)
                    heartbeat = seen._heartbeat
                heartbeat.join()
    finally:
        sys.setswitchinterval(interval)


def test_a_claim_that_the_caller_assumed_new_stays_claimed(
    clockwork: servers.Clockwork, name: str
) -> None:
    """The claim reached the server, the reply did not, and the caller begins the work: no other process gets it."""
    url = clockwork.server.url
    with sync(url, name, session_ttl=2 * LIFE) as ours, sync(url, name) as theirs:
        ours.add("before")
        lose(ours.client, flow_of(ours, "claim", "a", None, "the work"))
        ours.assume_new(["a"])
        for _ in range(5):
            clockwork.go_on(1)
            ours._send_heartbeat()
            assert BUSY is theirs.claim("a")
            assert [] == theirs.take_over()
