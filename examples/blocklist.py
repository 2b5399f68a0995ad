"""A block list that is rebuilt while it is used, with an exact second look.

The filter says of nearly all other hosts at once that they are not on the list, and takes 2 to 3 bytes for each that is. What it
finds is looked up in the list itself, a table of a database for example: a false positive costs a look-up, and blocks nobody.
"""

import os
from collections.abc import Iterable
from typing import Any

import redis

from tbloom import TimeBloom

#: Each list has a name of its own. This key has the name of the current one.
POINTER = "blocked"
# A list that forgot its hosts would let them through: it has no window.
PARAMETERS: Any = {"granularity": None, "capacity": 100_000, "error_rate": 0.001}


class BlockList:
    def __init__(self, client: redis.Redis) -> None:
        self.client, self.looks = client, 0
        self.filter = self.open(client.get(POINTER))

    def open(self, name: bytes | None) -> TimeBloom:
        return TimeBloom(self.client, name.decode() if name else "blocked-0", **PARAMETERS)

    def has(self, host: str) -> bool:
        if host not in self.filter:
            return False
        self.looks += 1
        return bool(self.client.sismember(f"{self.filter.name}-hosts", host))

    def refresh(self) -> None:
        """Looks for a new list. Each process calls it once a minute, for example."""
        self.filter = self.open(self.client.get(POINTER))

    def replace(self, hosts: Iterable[str]) -> None:
        """Makes a new list the current one."""
        hosts, before = [*hosts], self.open(self.client.get(POINTER))
        new = f"blocked-{self.client.incr(f'{POINTER}-number')}"
        with TimeBloom(self.client, new, **PARAMETERS) as built:
            built.add_many(hosts)
        self.client.sadd(f"{new}-hosts", *hosts)
        self.client.set(POINTER, new)
        self.refresh()
        # Processes that have not refreshed still ask the list before this one, so the one before that goes.
        if old := self.client.getset(f"{POINTER}-before", before.name):
            self.open(old).clear()
            self.client.delete(f"{old.decode()}-hosts")


def main() -> None:
    with redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0")) as client:
        blocked = BlockList(client)
        blocked.replace(f"bad{number}.example" for number in range(10_000))
        good = sum(blocked.has(f"good{number}.example") for number in range(2000))
        print(f"of 2,000 others, blocked: {good}; looked up: {blocked.looks}")
        print("bad5.example:", blocked.has("bad5.example"))
        other = BlockList(client)
        blocked.replace(f"bad{number}.example" for number in range(10, 10_000))
        print("bad5.example, after it left the list:", blocked.has("bad5.example"))
        print("bad5.example, in a process with the last list:", other.has("bad5.example"))
        other.refresh()
        print("bad5.example, after this one has refreshed:", other.has("bad5.example"))
        print("bad50.example:", blocked.has("bad50.example"))


if __name__ == "__main__":
    main()
