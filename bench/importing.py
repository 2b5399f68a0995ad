"""How fast ``tbloom import`` moves a set of fingerprints, source and target on one local Redis."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

import redis
from serving import server_seconds, slow_log

from tbloom import TimeBloom
from tbloom.demo.localredis import LocalRedis

TBLOOM = [sys.executable, "-c", "import sys; from tbloom.cli import main; sys.exit(main())"]
_AT_ONCE = 10_000
#: The slow log's threshold (us).
_SLOW = 1000


def imports(server: LocalRedis, client: redis.Redis, *, items: int) -> dict[str, Any]:
    """Items per second as the command says, the server's processor time for each (us), and its longest command (ms).

    Into the current slice, once more into that, and into the oldest one.
    """
    client.flushall()
    chance = random.Random(1)
    for _ in range(0, items, _AT_ONCE):
        client.sadd("old", *(chance.randbytes(20).hex() for _ in range(_AT_ONCE)))
    with (
        slow_log(client, _SLOW),
        TimeBloom.from_url(server.url, "new", capacity=items) as seen,
    ):
        oldest = seen.info().slices[0].label
        rows = [
            _import(server, client, items, "the current slice"),
            _import(server, client, items, "the same again"),
        ]
        seen.clear()
        rows.append(_import(server, client, items, "the oldest of 7 slices", "--slice", oldest))
    client.flushall()
    return {"items": items, "rows": rows}


def _import(
    server: LocalRedis, client: redis.Redis, items: int, title: str, *options: str
) -> dict[str, Any]:
    client.slowlog_reset()
    command = [*TBLOOM, "import", "--url", server.url, "new", "--create", "--capacity", str(items)]
    served, start = server_seconds(client), time.perf_counter()
    subprocess.run(
        [*command, "--from-set", "old", "--quiet", *options], check=True, capture_output=True
    )
    elapsed, served = time.perf_counter() - start, server_seconds(client) - served
    # Without Python's start-up time, which does not matter for a larger set.
    start = time.perf_counter()
    subprocess.run([*TBLOOM, "import", "--help"], check=True, capture_output=True)
    elapsed -= time.perf_counter() - start
    longest = max((entry["duration"] for entry in client.slowlog_get(10_000)), default=_SLOW)
    return {
        "title": title,
        "rate": items / elapsed,
        "server": served / items * 1e6,
        "longest": longest / 1000,
    }
