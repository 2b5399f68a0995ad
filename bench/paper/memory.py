"""The memory of scrapy-redis' set, and of a window that remembers the same items."""

from __future__ import annotations

from typing import Any

from bench.contest import fingerprints
from bench.serving import Server
from bench.tables import Table, amount
from tbloom import TimeBloom
from tbloom.bloom import sizing

#: The paper's largest crawl has 6 * 10^8 requests.
SIZES = (10**5, 10**6, 10**7, 10**8, 6 * 10**8, 10**9)
SLICES = 7
_BATCH = 10_000


def measure(server: Server, most: int) -> Table:
    """What sets and windows of up to ``most`` items take, and beyond as computed."""
    server.empty()
    windows = [_window(server, items, fill=items <= most) for items in SIZES]
    empty, done, per_item = server.bytes_of_data(), 0, 0.0
    rows: list[list[Any]] = []
    for items, window in zip(SIZES, windows, strict=True):
        while done < min(items, most):
            server.client.sadd("set", *fingerprints(f"{done}", _BATCH))
            done += _BATCH
        if items <= most:
            per_item = (server.bytes_of_data() - empty) / items
        of_set = items * per_item
        note = "measured" if items <= most else "computed"
        rows.append(
            [items, note, *(amount(size, 1024) for size in (of_set, window)), of_set / window]
        )
    server.empty()
    columns = {"items": ",d", "": "", "set": "", "window": "", "set / window": ".0f"}
    return Table("memory", columns, rows)


def _window(server: Server, items: int, *, fill: bool) -> int:
    """Memory of the default window for that number of items; by the month, so that no slice ends."""
    sizes = {"slices": SLICES, "capacity": -(-items // SLICES)}
    seen = TimeBloom(server.client, "paper", granularity="m", **sizes)
    config = seen.config
    if not fill:
        return SLICES * config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits))
    # A slice has its full size from its first item on. Chance leaves no shard without an item.
    for slice in seen.info().slices:
        seen.import_many(fingerprints(slice.label, 100 * config.shards), slice.label)
    used = server.bytes_of_keys()
    server.empty()
    return used
