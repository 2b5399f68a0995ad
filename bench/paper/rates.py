"""Error rates: of one filter of the best size for 6 hashes, and of a window of full slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import redis

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
    computed = sizing.rate_at(items, bits, HASHES)
    return {"items": items, "bits": bits, "classic": classic, "computed": computed}


def measure_best(client: redis.Redis, most: int, asked: int) -> Iterator[dict[str, Any]]:
    """All sizes; measured on the server up to ``most`` items."""
    for items in SIZES:
        found = best(items)
        if items <= most:
            client.flushall()
            seen = _filter(client, items, found["bits"], slices=1)
            for some in _batches("item", items):
                seen.add_many(some)
            found |= {"asked": asked, "seen": _count_seen(seen, asked)}
        yield found


def measure_window(client: redis.Redis, items: int, bits: int, asked: int) -> dict[str, Any]:
    """Fills the slices of a window, and asks it for items that were never added.

    ``union``: an item is called seen if any slice holds it. ``product``: the paper's formula, as if all had to.
    """
    client.flushall()
    bits = sizing.whole_blocks(bits, HASHES)
    seen = _filter(client, items, bits, slices=SLICES)
    for slice in seen.info().slices:
        for some in _batches(f"item of {slice.label}", items):
            seen.import_many(some, slice.label)
    rate = sizing.rate_at(items, bits, HASHES)
    union, product = sizing.window_rate([rate] * SLICES), rate**SLICES
    sizes = {"items": items, "bits": bits, "slice": rate, "union": union, "product": product}
    return {**sizes, "asked": asked, "seen": _count_seen(seen, asked)}


def _filter(client: redis.Redis, items: int, bits: int, slices: int) -> TimeBloom:
    sizes: dict[str, Any] = {"capacity": items, "bits": bits, "hashes": HASHES, "slices": slices}
    # By the month: no slice ends while it is filled.
    return TimeBloom(client, "paper", granularity="m", grow=False, **sizes)


def _batches(prefix: str, count: int) -> Iterator[list[str]]:
    for start in range(0, count, _BATCH):
        yield [f"{prefix} {n}" for n in range(start, min(count, start + _BATCH))]


def _count_seen(seen: TimeBloom, asked: int) -> int:
    """How many of that number of items, which were never added, are called seen."""
    return sum(sum(seen.contains_many(some)) for some in _batches("stranger", asked))
