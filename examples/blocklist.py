"""A block list that is rebuilt while it is used, with an exact second look.

The filter says of nearly all other hosts at once that they are not on the list, and takes 2 to 3 bytes for each that is. What it
finds is looked up in the list itself, a table of a database for example: a false positive costs a look-up, and blocks nobody.
"""

import os
from collections.abc import Iterable
from typing import Any

import redis

from tbloom import TimeBloom

LIST, NAME = "blocked hosts", "blocked"
# A list that forgot its hosts would let them through: it has no window.
PARAMETERS: Any = {"granularity": None, "capacity": 100_000, "error_rate": 0.001}


class BlockList:
    def __init__(self, client: redis.Redis) -> None:
        self.client, self.looks = client, 0
        self.filter = TimeBloom(client, NAME, **PARAMETERS)

    def has(self, host: str) -> bool:
        if host not in self.filter:
            return False
        self.looks += 1
        return bool(self.client.sismember(LIST, host))

    def replace(self, hosts: Iterable[str]) -> None:
        """Puts a new list in the place of the old one. What is on both is blocked at every moment."""
        hosts, new = [*hosts], f"{{{NAME}}}:new"
        with TimeBloom(self.client, new, **PARAMETERS) as built:
            built.clear()  # what a process that died in this place has left
            built.add_many(hosts)
        self.client.delete(f"{LIST}:new")
        self.client.sadd(f"{LIST}:new", *hosts)
        self.client.rename(f"{LIST}:new", LIST)
        self.filter.swap(new)


def main() -> None:
    with redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0")) as client:
        blocked = BlockList(client)
        blocked.replace(f"bad{number}.example" for number in range(10_000))
        good = sum(blocked.has(f"good{number}.example") for number in range(2000))
        print(f"of 2,000 others, blocked: {good}; looked up: {blocked.looks}")
        print("bad5.example:", blocked.has("bad5.example"))
        blocked.replace(f"bad{number}.example" for number in range(10, 10_000))
        print("bad5.example, after it left the list:", blocked.has("bad5.example"))
        print("bad50.example:", blocked.has("bad50.example"))


if __name__ == "__main__":
    main()
