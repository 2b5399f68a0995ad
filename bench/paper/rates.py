"""Error rates: of one filter of the best size for 6 hashes, and of a window of full slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import redis

from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom import sizing

HASHES, SLICES = 6, 3
SIZES = tuple(10**power for power in range(5, 10))
_BATCH = 50_000


def best(items: int) -> dict[str, Any]:
    """The best size of one filter for 6 hashes: with fewer bits, fewer hashes would be better.

    Its rate by the classic formula is 2^-6 for any number of items; tbloom's blocks add a little.
    """
    bits = sizing.whole_blocks(round(items * HASHES / math.log(2)), HASHES)
    classic = (-math.expm1(-HASHES * items / bits)) ** HASHES
    return {"items": items, "bits": bits, "classic": classic, **_computed(items, bits, 1)}


def measure(client: redis.Redis, pages: int, bits: int, most: int, asked: int) -> list[Table]:
    """The rates of an overfilled window and of that of the daily crawls; and of the best sizes, measured up to ``most`` items."""
    windows = (
        measure_window(client, 100_000, 845_000, asked),
        measure_window(client, pages, bits, asked),
    )
    rows = [[name, *(window[name] for window in windows)] for name in ("measured", "any", "all")]
    sizes: list[list[Any]] = []
    for items in SIZES:
        found = best(items)
        is_measured = items <= most
        rate = (
            measure_window(client, items, found["bits"], asked, 1)["measured"]
            if is_measured
            else None
        )
        sizes.append([items, *(found[name] for name in ("bits", "classic", "any")), rate])
    columns = {"items": ",d", "bits": ",d", "classic rate": ".4f", "in tbloom's blocks": ".4f"}
    return [
        Table("rates", {"": "", "overfilled": ".3g", "the daily crawls'": ".3g"}, rows),
        Table("best", {**columns, "measured": ".4f"}, sizes),
    ]


def measure_window(
    client: redis.Redis, items: int, bits: int, asked: int, slices: int = SLICES
) -> dict[str, Any]:
    """Fills the slices of a window, and asks it for items that were never added: the share that is called seen."""
    client.flushall()
    bits = sizing.whole_blocks(bits, HASHES)
    # A rate that any of these windows keeps: what they have is measured.
    sizes: dict[str, Any] = {"capacity": items, "bits": bits, "hashes": HASHES, "slices": slices}
    sizes["error_rate"] = 0.5
    # By the month: no slice ends while it is filled.
    seen = TimeBloom(client, "paper", granularity="m", grow=False, **sizes)
    for slice in seen.info().slices:
        for some in _batches(f"item of {slice.label}", items):
            seen.import_many(some, slice.label)
    called_seen = sum(sum(seen.contains_many(some)) for some in _batches("stranger", asked))
    return {**_computed(items, bits, slices), "measured": called_seen / asked}


def _computed(items: int, bits: int, slices: int) -> dict[str, float]:
    """The rate if an item is seen that is in any slice; and the paper's formula, as if it had to be in all."""
    rate = sizing.rate_at(items, bits, HASHES)
    return {"any": sizing.window_rate([rate] * slices), "all": rate**slices}


def _batches(prefix: str, count: int) -> Iterator[list[str]]:
    for start in range(0, count, _BATCH):
        yield [f"{prefix} {n}" for n in range(start, min(count, start + _BATCH))]
