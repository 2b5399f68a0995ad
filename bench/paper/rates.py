"""Error rates of a window of full slices."""

from __future__ import annotations

from typing import Any

import redis

from bench.contest import fingerprints
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom import sizing

HASHES, SLICES = 6, 3


def measure(client: redis.Redis, pages: int, bits: int, asked: int) -> Table:
    """Return the rates of an overfilled window, and of a window of the daily crawls."""
    windows = (
        measure_window(client, 100_000, 845_000, asked),
        measure_window(client, pages, bits, asked),
    )
    rows = [[name, *(window[name] for window in windows)] for name in ("measured", "any", "all")]
    return Table("rates", {"": "", "overfilled": ".3g", "the daily crawls'": ".3g"}, rows)


def measure_window(client: redis.Redis, items: int, bits: int, asked: int) -> dict[str, Any]:
    """Fill the slices of a window. Return the share of items that it calls seen though they were never added."""
    client.flushall()
    bits = sizing.whole_blocks(bits, HASHES)
    # Any window keeps such a rate, so this promise does not change its size.
    sizes: dict[str, Any] = {"capacity": items, "bits": bits, "hashes": HASHES, "slices": SLICES}
    sizes["error_rate"] = 0.5
    # Slices of a month, so that none ends while it is filled.
    seen = TimeBloom(client, "paper", granularity="m", grow=False, **sizes)
    for slice in seen.info().slices:
        seen.import_many(fingerprints(f"item of {slice.label}", items), slice.label)
    called_seen = sum(seen.contains_many(fingerprints("never added", asked)))
    rate = sizing.rate_at(items, bits, HASHES)
    # An item is seen if any slice has it. The paper's formula is that of an item that all slices have.
    computed = {"any": sizing.window_rate([rate] * SLICES), "all": rate**SLICES}
    return {**computed, "measured": called_seen / asked}
