"""The memory of scrapy-redis' set, of a window that remembers the same items, and of the queue of requests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request, Spider
from scrapy_redis.queue import PriorityQueue

from tbloom.bloom import sizing
from tbloom.bloom.sync import TimeBloom

if TYPE_CHECKING:
    import redis

    from tbloom.bloom.config import Config
    from tbloom.cli.kit.progress import Reporter

#: The paper's largest crawl has 6 * 10^8 requests.
SIZES = (10**5, 10**6, 10**7, 10**8, 6 * 10**8, 10**9)
SLICES = 7
#: Of all items, one in this number is still in the queue.
ITEMS_PER_WAITING = 10
#: Memory of a fingerprint in the set, to judge what fits; and the share of the free memory that may be used.
_SET_BYTES, _SHARE = 110, 0.6
# Lua's unpack() takes 8,000 at most.
_BATCH = 5000
#: Chance leaves no shard without an item: each has 100 on average.
_ITEMS_PER_SHARD = 100
# Texts as long as fingerprints, which take the same memory.
_ADD = """
local members = {}
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  members[#members + 1] = string.format('%040x', i)
end
redis.call('SADD', KEYS[1], unpack(members))
"""


class Size(NamedTuple):
    """The memory for a number of items (bytes). None: more than this machine has, or than --quick measures."""

    items: int
    set: int | None
    window: int | None
    #: A window of this size, as computed.
    window_model: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What was measured."""

    sizes: list[Size]
    #: Of a request in scrapy-redis' queue (bytes), and how many were put there.
    request: float
    requests: int

    @property
    def set_item(self) -> float:
        """Memory of an item in the largest set that was measured."""
        largest = [size for size in self.sizes if size.set is not None][-1]
        return (largest.set or 0) / largest.items

    def set(self, size: Size) -> float:
        """Memory of the set; beyond what was measured, in proportion."""
        return size.items * self.set_item if size.set is None else size.set

    def window(self, size: Size) -> float:
        """Memory of the window, measured or computed."""
        return size.window_model if size.window is None else size.window

    def queue(self, size: Size) -> float:
        """Memory of the queue."""
        return size.items / ITEMS_PER_WAITING * self.request

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        sizes = [size._asdict() for size in self.sizes]
        return {"sizes": sizes, "request": self.request, "requests": self.requests}


def measure(client: redis.Redis, most: int, requests: int, reporter: Reporter) -> Memory:
    """Measures sets and windows of up to ``most`` items, as far as the machine's memory allows."""
    client.flushall()
    free = _free() * _SHARE
    fitting = [items for items in SIZES if items <= most and items * _SET_BYTES < free]
    windows = []
    for items in SIZES:
        seen = _filter(client, items)
        used = _window(client, seen) if items in fitting else None
        windows.append((window_model(seen.config), used))
        client.flushall()
    queue = _queue(client, requests)
    client.flushall()
    sets = []
    with reporter.count("Filling a Redis set", fitting[-1], "items") as advance:
        empty, done = _used(client), 0
        add = client.register_script(_ADD)
        for items in fitting:
            while done < items:
                add(keys=["set"], args=[done, min(items, done + _BATCH) - 1])
                done = min(items, done + _BATCH)
                advance(done)
            sets.append(_used(client) - empty)
    client.flushall()
    more: list[int | None] = [None] * (len(SIZES) - len(sets))
    return Memory(
        [
            Size(items, of_set, window, model)
            for items, of_set, (model, window) in zip(SIZES, [*sets, *more], windows, strict=True)
        ],
        queue / requests,
        requests,
    )


def window_model(config: Config) -> int:
    """Memory of a window of full slices, as Redis allocates it."""
    return config.slices * config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits))


def _filter(client: redis.Redis, items: int) -> TimeBloom:
    """The default filter for that number of items in the whole window; by the month, so that no slice ends."""
    return TimeBloom(
        client, "paper-memory", granularity="m", slices=SLICES, capacity=-(-items // SLICES)
    )


def _window(client: redis.Redis, seen: TimeBloom) -> int:
    """Memory of the window; a slice has its full size from its first item on."""
    items = [f"item {n}" for n in range(_ITEMS_PER_SHARD * seen.config.shards)]
    for slice in seen.info().slices:
        seen.import_many([f"{slice.label} {item}" for item in items], slice.label)
    return sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(count=1000))


def _queue(client: redis.Redis, requests: int) -> int:
    """Memory of scrapy-redis' default queue with that number of requests."""
    queue = PriorityQueue(client, Spider("paper"), "requests")
    before = _used(client)
    for n in range(requests):
        digest = hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest()
        queue.push(Request(f"https://example.com/articles/{digest[:24]}.html", meta={"depth": 3}))
    return _used(client) - before


def _used(client: redis.Redis) -> int:
    """What the server has allocated."""
    return int(client.info("memory")["used_memory"])


def _free() -> int:
    """Memory that this machine can still give (bytes); where it does not say so, 2 GB."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) << 10
    except (OSError, StopIteration):
        return 2 << 30
