"""What must hold, under what happens to real fleets. "What must hold" in the design, point by point."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import pytest
import redis

from tbloom import TimeBloom


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "commit", "release"])
def test_a_verb_is_one_round_trip(
    url: str, client: redis.Redis, name: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the client knows the server's clock: one command per call, new or seen, and no other but heartbeats."""
    monkeypatch.setattr("tbloom.bloom.claims.heartbeat._FIRST", 60.0)
    with TimeBloom.from_url(f"{url}?client_name={name}", name) as seen:
        call = getattr(seen, verb)
        items = [f"item {i}" for i in range(100)]
        if verb == "release":
            seen.claim_many([*items, "warm up"])
        call("warm up")
        with client.monitor() as monitor:
            for item in items:
                call(item)
            client.echo(name)
            received = list(takewhile(lambda each: "ECHO" != each["command"][:4], monitor.listen()))
        ours = {each["addr"] for each in client.client_list() if each["name"] == name}
    commands = [
        each["command"].split()[0]
        for each in received
        if f"{each['client_address']}:{each['client_port']}" in ours
    ]
    assert ["EVALSHA"] * 100 == commands


@pytest.mark.parametrize("days_off", [-1, 1, 400])
def test_wrong_clocks_share_slices_with_right_ones(url: str, name: str, days_off: int) -> None:
    """Which slice is current is the server's to say, so a client's clock doesn't matter."""
    import time  # noqa: PLC0415 - the module is patched below

    wrong = time.time_ns() + days_off * 86_400 * 10**9
    with TimeBloom.from_url(url, name) as right:
        with patch("tbloom.engine.clock.time.time_ns", lambda: wrong):
            off = TimeBloom.from_url(url, name)
        with off:
            assert [True, False] == [right.add("a"), off.add("a")]
            assert [True, False] == [off.add("b"), right.add("b")]
            assert right.keys() == off.keys()
            assert [0, 2] == [slice.items for slice in right.info().slices][-2:]


@pytest.mark.busy
@pytest.mark.parametrize(
    ("capacity", "error_rate", "grow", "probes"),
    [
        (1000, 1e-2, True, 20_000),
        pytest.param(20_000, 1e-4, False, 500_000, marks=pytest.mark.check),
    ],
)
def test_the_promised_error_rate_is_kept_at_capacity(
    clockwork: Any, name: str, *, capacity: int, error_rate: float, probes: int, grow: bool
) -> None:
    """7 full slices; of ``probes`` other items at most 1.1 * error_rate are called seen."""
    parameters = {"slices": 7, "capacity": capacity, "error_rate": error_rate, "grow": grow}
    with TimeBloom.from_url(clockwork.server.url, name, **parameters) as seen:
        for day in range(7):
            clockwork.set(f"2019-06-{3 + day:02} 12:00:00")
            fresh = 0
            while fresh < capacity:  # items that are taken for seen don't fill the slice
                some = (f"added {day} {fresh} {i}" for i in range(capacity - fresh))
                fresh += sum(seen.add_many(some))
        info = seen.info()
        assert [capacity] * 7 == [slice.items for slice in info.slices]
        wrong = 0
        for start in range(0, probes, 20_000):
            wrong += sum(seen.contains_many(f"other {start + i}" for i in range(20_000)))
    assert wrong / probes <= 1.1 * error_rate
    # A filter that may grow keeps half of the rate for its further parts.
    assert info.error_rate == pytest.approx(error_rate / 2 if grow else error_rate, rel=0.1)


def test_every_key_has_a_ttl_at_every_moment(url: str, name: str) -> None:
    """Watched while four threads add over several slices of one second."""
    done = threading.Event()
    ttls: dict[str, list[int]] = {"config": [], "state": [], "slice": []}

    def watch() -> None:
        with redis.Redis.from_url(url, decode_responses=True) as watcher:
            while not done.is_set():
                for key in watcher.keys(f"*{name}*"):
                    part = key.split(":")[1]
                    ttls[part if part in ttls else "slice"].append(watcher.pttl(key))

    with TimeBloom.from_url(url, name, granularity="1s", slices=2, capacity=10_000) as seen:
        watcher = threading.Thread(target=watch)
        watcher.start()
        with ThreadPoolExecutor(4) as threads:
            answers = [threads.submit(seen.add, f"item {i}") for i in range(8000)]
        done.set()
        watcher.join()
    assert 7990 < sum(answer.result() for answer in answers) <= 8000
    for part, seen_ttls in ttls.items():
        assert len(seen_ttls) > 10, part
        assert -1 not in seen_ttls, part  # -2: gone between the two calls
        assert max(seen_ttls) <= 2000, part
