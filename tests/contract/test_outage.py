"""``on_error``: who asks a dead server is answered at once, and again by the server once it is back."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigError, TimeBloom
from tests.helpers.killable import Killable
from tests.helpers.making import Make, missing
from tests.helpers.proxy import Proxy
from tests.helpers.servers import BINARIES
from tests.helpers.stores import EXACT

ANSWERS = {"schedule": (True, False, Claim.NEW), "drop": (False, True, Claim.SEEN)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killable]:
    if "redis-server" not in BINARIES:
        missing("redis-server")
    with Killable(BINARIES["redis-server"], tmp_path, "--appendonly", "yes") as server:
        yield server


@pytest.mark.parametrize("policy", ANSWERS)
async def test_the_policy_answers_while_the_server_is_down_and_the_server_after(
    make: Make,
    server: Killable,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
) -> None:
    """It is asked once, and then not for a while; each change is said once."""
    caplog.set_level(logging.INFO, "tbloom")
    new, seen_before, claim = ANSWERS[policy]
    seen = make(url=server.url, on_error=policy, resend=False)
    circuit = (seen._seen if hasattr(seen, "_seen") else seen).circuit
    assert await seen.add("before")
    server.kill()
    for i in range(10):
        assert new is await seen.add("before")
        assert [new, new] == await seen.add_many(iter(["a", "b"]))
        assert seen_before is await seen.contains("before")
        assert [seen_before] == await seen.contains_many(["a"])
        assert claim is await seen.claim(f"one {i}")
        assert [claim] == await seen.claim_many([f"one of many {i}"])
        assert None is await seen.commit("work done meanwhile")
    assert (1, 70) == (circuit.errors, circuit.answers)
    with pytest.raises(redis.ConnectionError):
        await seen.info()  # there is no policy for what it would say
    server.restart()
    assert new is await seen.add("before")  # not asked yet
    monkeypatch.setattr("tbloom.engine.outage.HOLD_OFF", 0.0)
    circuit.failed(redis.ConnectionError())  # from now on it is asked each time
    assert not await seen.add("before")
    assert await seen.contains("before")
    assert not circuit.is_open
    said = [record.getMessage() for record in caplog.records if "filter" in record.getMessage()]
    assert 2 == len(said)
    assert "does not answer; items are taken for" in said[0]
    assert "answers again" in said[1]


@pytest.mark.parametrize("policy", ANSWERS)
def test_what_was_done_while_the_server_was_down_is_marked_later(
    server: Killable, name: str, policy: str
) -> None:
    with TimeBloom.from_url(server.url, name, on_error=policy, retry_for=0, session_ttl=1) as seen:
        seen.claim("claimed before")
        server.kill()
        seen.commit("claimed before")
        seen.commit("never claimed")
        server.restart()
        with TimeBloom.from_url(server.url, name) as other:
            while not all(other.contains_many(["claimed before", "never claimed"])):
                pass


def test_a_server_that_hangs_is_waited_for_once(server: Killable, name: str) -> None:
    """Its time-out is spent on one call, and again on one each HOLD_OFF seconds; not on every one."""
    with (
        Proxy(server.url, lambda _: None) as proxy,
        TimeBloom.from_url(
            f"{proxy.url}?socket_timeout=0.2", name, on_error="schedule", retry_for=0
        ) as seen,
    ):
        seen.add("before")
        process = server.process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert [True] * 1000 == [seen.add("before") for _ in range(1000)]
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert 1 == seen.circuit.errors


@pytest.mark.parametrize(
    "planted", [lambda client, name: client.rpush(f"{{{name}}}:config", "x")], ids=["WRONGTYPE"]
)
@pytest.mark.parametrize("policy", ANSWERS)
async def test_an_error_that_does_not_pass_comes_through(
    make: Make, client: redis.Redis, name: str, policy: str, planted: Any
) -> None:
    """As does one of another password, or of a user who may not."""
    planted(client, name)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await make(on_error=policy).add("a")


@pytest.mark.parametrize(
    ("argument", "value"),
    [("on_error", "ignore"), ("on_error", None), ("retry_for", -1), ("retry_for", "5")],
)
def test_a_bad_argument_is_named(url: str, name: str, argument: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{argument}: expected"):
        TimeBloom.from_url(url, name, **{argument: value})


@pytest.mark.parametrize("policy", ["schedule", "drop"])
@pytest.mark.parametrize("store", [EXACT], ids=str, indirect=True)
async def test_the_policy_answers_for_an_exact_filter_too(
    opened: Any, server: Killable, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr("tbloom.engine.outage.HOLD_OFF", 0.0)
    new, seen_before, _ = ANSWERS[policy]
    seen = opened(url=server.url, on_error=policy, resend=False)
    assert await seen.add("before")
    server.kill()
    for _ in range(3):
        assert new is await seen.add("before")
        assert [new, new] == await seen.add_many(iter(["a", "b"]))
        assert seen_before is await seen.contains("before")
        assert [seen_before] == await seen.contains_many(["a"])
    with pytest.raises(redis.ConnectionError):
        await seen.info()
    server.restart()
    assert [False, True] == await seen.add_many(["before", "a"])
