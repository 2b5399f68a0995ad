"""The memory of scrapy-redis' set, of a window that remembers the same items, and of the queue of requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy_redis.queue import PriorityQueue

from bench.contest import fingerprints
from bench.serving import Server
from tbloom import TimeBloom
from tbloom.bloom import sizing

#: The paper's largest crawl has 6 * 10^8 requests.
SIZES = (10**5, 10**6, 10**7, 10**8, 6 * 10**8, 10**9)
SLICES = 7
#: Of all items, one in this number is still in the queue.
ITEMS_PER_WAITING = 10
#: Memory of a fingerprint in the set, to judge what fits; and the share of the free memory that may be used.
_SET_BYTES, _SHARE = 110, 0.6
# Lua's unpack() takes 8,000 at most.
_BATCH = 5000
# Texts as long as fingerprints, which take the same memory.
_ADD = """
local members = {}
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  members[#members + 1] = string.format('%040x', i)
end
redis.call('SADD', KEYS[1], unpack(members))
"""


def measure(server: Server, most: int, requests: int) -> dict[str, Any]:
    """Bytes of sets and windows of up to ``most`` items, as far as the machine's memory allows; beyond, as computed.

    ``request``: bytes of a request in scrapy-redis' queue.
    """
    server.empty()
    fitting = [items for items in SIZES if items <= most and items * _SET_BYTES < _SHARE * _free()]
    windows = [_window(server, items, fill=items in fitting) for items in SIZES]
    request = _queue(server, requests) / requests
    server.empty()
    empty, done, sets = server.bytes_of_data(), 0, []
    add = server.client.register_script(_ADD)
    for items in fitting:
        while done < items:
            add(keys=["set"], args=[done, min(items, done + _BATCH) - 1])
            done = min(items, done + _BATCH)
        sets.append(server.bytes_of_data() - empty)
    server.empty()
    sets += [round(sets[-1] / done * items) for items in SIZES[len(sets) :]]
    sizes = [
        {"items": items, "measured": items in fitting, "set": of_set, "window": window}
        for items, of_set, window in zip(SIZES, sets, windows, strict=True)
    ]
    return {"sizes": sizes, "request": request}


def _window(server: Server, items: int, *, fill: bool) -> int:
    """Memory of the default window for that number of items; by the month, so that no slice ends."""
    sizes = {"slices": SLICES, "capacity": -(-items // SLICES)}
    seen = TimeBloom(server.client, "paper", granularity="m", **sizes)
    config = seen.config
    used = SLICES * config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits))
    if fill:
        # A slice has its full size from its first item on. Chance leaves no shard without an item.
        for slice in seen.info().slices:
            few = fingerprints(slice.label, 100 * config.shards)
            seen.import_many(few, slice.label)
        used = server.bytes_of_keys()
    server.empty()
    return used


def _queue(server: Server, requests: int) -> int:
    """Memory of scrapy-redis' default queue with that number of requests."""
    queue = PriorityQueue(server.client, Spider("paper"), "requests")
    before = server.bytes_of_data()
    for digest in fingerprints("request", requests):
        queue.push(Request(f"https://example.com/articles/{digest[:24]}.html", meta={"depth": 3}))
    return server.bytes_of_data() - before


def _free() -> int:
    """Memory that this machine can still give (bytes); where it does not say so, 2 GB."""
    path = Path("/proc/meminfo")
    found = re.search(r"MemAvailable: +(\d+)", path.read_text()) if path.exists() else None
    return int(found[1]) << 10 if found else 2 << 30
