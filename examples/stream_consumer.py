"""A consumer of a Redis stream that acts on each event once, though the stream delivers some again.

    redis-cli XGROUP CREATE events workers 0 MKSTREAM    # once
    python stream_consumer.py consumer-1

A producer that repeats an XADD makes two entries of one event, and a group delivers the entries of a dead consumer again. So
each event is claimed by its own id before the act, and committed after it. Only what a consumer was acting on when it was
killed is acted on twice.
"""

import os
import sys

import redis

from tbloom import Claim, TimeBloom

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
SESSION_TTL = float(os.environ.get("SESSION_TTL", "60"))
STREAM, GROUP = "events", "workers"


def consume(server: redis.Redis, done: TimeBloom, consumer: str) -> None:
    """Acts on events until none is left, and none is with another consumer."""
    idle_ms = int(1000 * SESSION_TTL)  # then an entry's consumer counts as dead, and its claims too
    while True:
        _, entries, *_ = server.xautoclaim(STREAM, GROUP, consumer, idle_ms, count=10)
        # Less than redis-py's socket_timeout, 5 s, after which a call that blocks is sent again.
        for _, new in server.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=10, block=100):
            entries += new
        if not entries and not server.xpending(STREAM, GROUP)["pending"]:
            return
        for entry, event in entries:
            claim = done.claim(event[b"id"])
            if claim is Claim.BUSY:
                continue  # not acknowledged, so it comes again
            if claim is Claim.NEW:
                try:
                    act(server, event)
                except Exception:
                    done.release(event[b"id"])
                    raise
                done.commit(event[b"id"])
            server.xack(STREAM, GROUP, entry)


def act(server: redis.Redis, event: dict[bytes, bytes]) -> None:
    server.rpush("acted", event[b"id"])


if __name__ == "__main__":
    with (
        redis.Redis.from_url(URL, protocol=2) as server,
        TimeBloom.from_url(URL, "acted on", error_rate=1e-9, session_ttl=SESSION_TTL) as done,
    ):
        consume(server, done, sys.argv[1])
