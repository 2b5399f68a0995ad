"""What happens to a server while clients use it, by the clock: one table for threads and tasks (``contract/test_races.py``) and for
crawlers (``scrapy/test_soak.py``). What happens to single messages: ``proxy``; move by move: ``tests/simulation``."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import redis

from tests.helpers.localredis import LocalRedis

#: For how many minutes crawlers and servers are killed (`make accounts`); else half a minute.
MINUTES = float(os.environ.get("TBLOOM_FAULTS", "0.5"))


def new_seed() -> int:
    """One to be printed with a failure; TBLOOM_SEED gives the same again."""
    seed = int(os.environ.get("TBLOOM_SEED") or random.randrange(1 << 32))
    print(f"TBLOOM_SEED={seed}")
    return seed


def _kill(server: LocalRedis, seconds: float) -> None:
    server.kill()
    time.sleep(seconds)
    server.restart()


def _stop(server: LocalRedis, seconds: float) -> None:
    assert server.process
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    server.process.send_signal(signal.SIGCONT)


def _forget_scripts(server: LocalRedis, _: float) -> None:
    with redis.Redis.from_url(server.url) as admin:
        admin.script_flush()


def _cut(server: LocalRedis, _: float) -> None:
    with redis.Redis.from_url(server.url) as admin:
        admin.client_kill_filter(_type="normal", skipme=True)


KILLED, STANDS, FORGETS, CUTS = "server killed", "server stands still", "scripts forgotten", "connections cut"  # fmt: skip
#: Each is told for how long (s) the server is to be away.
HARM: dict[str, Callable[[LocalRedis, float], None]] = {
    KILLED: _kill,
    STANDS: _stop,
    FORGETS: _forget_scripts,
    CUTS: _cut,
}
