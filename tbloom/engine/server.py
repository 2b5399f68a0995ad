"""What a server is asked: the time, stored parameters, and whether it evicts keys."""

from __future__ import annotations

import re

from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Command, Flow, deliver, deliver_all, text
from tbloom.engine.parameters import Guarded, mismatch


def ask_time(config: Guarded, clock: ServerClock) -> Flow[None]:
    """Sets the clock by the server that holds the store."""
    [[seconds, microseconds]] = yield from deliver([Command(("TIME",), config.keys.root)])
    clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)


def check_stored(config: Guarded) -> Flow[None]:
    """Raises ConfigMismatch where the root has other parameters."""
    [stored] = yield from deliver([Command(("GET", config.keys.root))])
    if stored is not None and text(stored) != config.stored:
        raise mismatch(config, stored)


def evictions(keys: list[str]) -> Flow[list[str]]:
    """A warning for each kind of server with these keys that evicts keys when its memory is full."""
    warnings: dict[str, None] = {}
    calls = [Command(("INFO", "memory"), key) for key in keys]
    for section in map(str, (yield from deliver_all(calls))):  # redis-py makes a dict of it
        limit = re.search(r"maxmemory\W+([1-9]\d*)", section)
        policy = re.search(r"maxmemory_policy\W+([\w-]+)", section)
        if limit and policy and policy[1] != "noeviction":
            warnings[
                f"the server drops keys once it uses {limit[1]} bytes (maxmemory-policy {policy[1]}); "
                "what they held is forgotten then: set noeviction"
            ] = None
    return list(warnings)
