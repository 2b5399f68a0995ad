"""Questions to a server (its time, stored parameters, whether it evicts keys), and the client's copy of its clock."""

from __future__ import annotations

import re
import time

from tbloom.engine.flow import Call, Flow, request, request_all, text
from tbloom.engine.parameters import Guarded, mismatch


class ServerClock:
    """The server's last known time, plus the time passed since by this machine's monotonic clock.

    It starts from this machine's wall clock. If that is wrong, the server corrects the first call.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self.learn(time.time_ns() // 1_000_000)

    def now(self) -> int:
        """Return the server's time in milliseconds since the epoch."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def learn(self, server_ms: int) -> None:
        """Set the clock to the server's time (ms)."""
        self._ahead = server_ms - time.monotonic_ns() // 1_000_000


def ask_time(config: Guarded, clock: ServerClock) -> Flow[None]:
    """Set the clock by the server that holds the store."""
    [[seconds, microseconds]] = yield from request([Call(("TIME",), config.keys.root)])
    clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)


def check_stored(config: Guarded) -> Flow[None]:
    """Raise ConfigMismatch if other parameters than the client's are stored at the root."""
    [stored] = yield from request([Call(("GET", config.keys.root))])
    if stored is not None and text(stored) != config.stored:
        raise mismatch(config, stored)


def evictions(keys: list[str]) -> Flow[list[str]]:
    """Return warnings about the servers of these keys that evict keys when their memory is full, each distinct text once."""
    warnings: dict[str, None] = {}
    calls = [Call(("INFO", "memory"), key) for key in keys]
    for section in map(str, (yield from request_all(calls))):  # redis-py makes a dict of it
        limit = re.search(r"maxmemory\W+([1-9]\d*)", section)
        policy = re.search(r"maxmemory_policy\W+([\w-]+)", section)
        if limit and policy and policy[1] != "noeviction":
            warnings[
                f"the server drops keys once it uses {limit[1]} bytes (maxmemory-policy {policy[1]}); "
                "what they held is forgotten then: set noeviction"
            ] = None
    return list(warnings)
