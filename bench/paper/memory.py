"""The memory of scrapy-redis' set, and of a window that remembers the same items."""

from __future__ import annotations

from typing import Any

from bench.contest import fingerprints
from bench.serving import Server
from bench.tables import Table, amount
from tbloom.bloom import sizing
from tbloom.bloom.config import configure

#: The paper's largest crawl has 6 * 10^8 requests.
SIZES = (10**5, 10**6, 10**7, 10**8, 6 * 10**8, 10**9)
SLICES = 7
_BATCH = 10_000


def measure(server: Server, most: int) -> Table:
    """Measure sets of up to ``most`` items. Compute larger sets, and windows."""
    server.empty()
    empty, done, per_item = server.bytes_of_data(), 0, 0.0
    rows: list[list[Any]] = []
    for items in SIZES:
        while done < min(items, most):
            server.client.sadd("set", *fingerprints(f"{done}", _BATCH))
            done += _BATCH
        if items <= most:
            per_item = (server.bytes_of_data() - empty) / items
        of_set = items * per_item
        config = configure("paper", slices=SLICES, capacity=-(-items // SLICES))
        key = sizing.allocated(sizing.key_bytes(config.shard_bits))
        window = SLICES * config.shards * key
        note = "measured" if items <= most else "computed"
        sizes = (amount(size, 1024) for size in (of_set, window))
        rows.append([items, note, *sizes, of_set / window])
    server.empty()
    columns = {"items": ",d", "": "", "set": "", "window": "", "set / window": ".0f"}
    return Table("memory", columns, rows)
