"""What left items cost: to leave and take them, to bury a dead session, and sessions that wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any

import redis

from bench.serving import Server
from bench.tables import Table
from tbloom import Note, TimeBloom
from tbloom.bloom.claims.calls import bury
from tests.helpers.flows import run

#: The length of a note: that of a request with a callback and two keys of meta.
_NOTE = "x" * 200
#: Items in a call of ``leave_many`` and ``take``; calls of each kind.
_ITEMS, _CALLS = 100, 30


def measure(
    server: Server,
    *,
    left: tuple[int, ...] = (10, 10**4, 10**6),
    claims: int = 10**6,
    waiting: int = 1000,
    seconds: float = 20,
) -> list[Table]:
    """Measure with so many ``left`` items, a dead session with so many ``claims``, and so many ``waiting`` sessions."""
    rows = [[count, *_leave_and_take(server, count)] for count in left]
    columns = {"left items": ",d", "leave, us an item": ".1f", "take, us an item": ".1f"}
    buried = [claims, *_bury(server, claims)]
    titles = {
        "claims of a dead session": ",d",
        "calls": ",d",
        "median ms": ".1f",
        "longest ms": ".1f",
    }
    waited = [waiting, *_wait(server, waiting, seconds)]
    more = {"sessions that wait": ",d", "questions a second": ".0f", "% of a core": ".2f"}
    return [
        Table("left", columns, rows),
        Table("left-buried", titles, [buried]),
        Table("left-waiting", more, [waited]),
    ]


def _leave_and_take(server: Server, count: int) -> tuple[float, float]:
    """Return the server's time of an item (us) to leave it, and to take it."""
    server.empty()
    with TimeBloom.from_url(server.url, "left", capacity=10**6, shards=1) as seen:
        _push(seen, count, "others")
        own = [f"own {n}" for n in range(_ITEMS)]
        seen.claim_many(own, notes=[Note(_NOTE, "own")] * _ITEMS)
        leaves, takes = list[float](), list[float]()
        for _ in range(_CALLS):
            leaves.append(_spent(seen.client, lambda: seen.leave_many(own)) / _ITEMS)
            takes.append(_spent(seen.client, lambda: seen.take(_ITEMS, "own")) / _ITEMS)
        return median(leaves), median(takes)


def _push(seen: TimeBloom, count: int, queue: str) -> None:
    names = (f"{queue} {n}" for n in range(count))
    while some := [*islice(names, 1000)]:
        seen.push_many(some, [Note(_NOTE, queue, host=name) for name in some])


def _bury(server: Server, count: int) -> tuple[int, float, float]:
    """Return the number of calls, the median of the server's time for one, and the longest (ms)."""
    server.empty()
    with TimeBloom.from_url(server.url, "left", capacity=10**6, shards=1) as seen:
        names = (f"item {n}" for n in range(count))
        while some := [*islice(names, 1000)]:
            seen.claim_many(some, notes=[Note(_NOTE, "own")] * len(some))
        seen._stop_heartbeat()  # which would bury, too
        keys = seen.config.keys
        seen.client.hset(keys.sessions(), seen.session, "1")  # alive until 1970
        took, call, more = list[float](), bury((keys.claims(), keys.sessions(), keys.left())), 1

        def flow() -> Any:
            [[_, again]] = yield [call]
            return again

        def step() -> None:
            nonlocal more
            more, _ = run(seen.client, flow())

        while more:
            took.append(_spent(seen.client, step) / 1000)
        return len(took), median(took), max(took)


def _wait(server: Server, count: int, seconds: float) -> tuple[float, float]:
    """Return the questions of the sessions a second, and the share of a core that the server needs for them (%)."""
    server.empty()
    client = redis.Redis.from_url(server.url, protocol=2)
    sessions = [TimeBloom(client, "left", capacity=1000, session_ttl=3600) for _ in range(count)]
    for seen in sessions:
        seen._keep_session = lambda: None  # type: ignore[method-assign] # no thread for each
    # As Scrapy's crawlers ask: a second after the last answer, and 20 ms more for each that waits, but at most 20 s.
    pause = min(1 + 0.02 * count, 20)
    for seen in sessions:
        seen.take(queue="own")
    before, begin, asked = _cpu(client), time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        due = int((now - begin) * count / pause)
        for n in range(asked, due):
            sessions[n % count].take(queue="own")
        asked = max(asked, due)
        time.sleep(0.001)
    elapsed = time.monotonic() - begin
    used = (_cpu(client) - before) / elapsed
    time.sleep(seconds / 2)
    rest, at = _cpu(client), time.monotonic()
    time.sleep(seconds / 2)
    idle = (_cpu(client) - rest) / (time.monotonic() - at)
    for seen in sessions:
        seen.close()
    client.close()
    return asked / elapsed, 100 * (used - idle)


def _cpu(client: Any) -> float:
    """Return the processor time that the server has used (s)."""
    info = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def _spent(client: Any, call: Callable[[], object]) -> float:
    """Return the server's time for the scripts of a call (us)."""

    def total() -> float:
        stats = client.info("commandstats")
        return float(
            sum(stats.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("evalsha", "eval"))
        )

    before = total()
    call()
    return total() - before
