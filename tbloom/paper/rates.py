"""Error rates: of one filter of the best size for 6 hashes, and of a window of overfilled slices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tbloom.bloom import sizing
from tbloom.bloom.sync import TimeBloom
from tbloom.cli.kit.classic import classic_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tbloom.cli.kit.progress import Reporter

HASHES = 6
SIZES = tuple(10**power for power in range(5, 10))
_BATCH = 50_000
SLICES = 3
#: Items and bits of a slice of the overfilled window.
_ITEMS, _BITS = 100_000, 845_000


class Best(NamedTuple):
    """The best size of one filter for 6 hashes: with fewer bits, fewer hashes would be better."""

    items: int
    bits: int
    #: The classic formula's rate, which is 2^-6 for any number of items.
    classic: float
    #: The rate of tbloom's blocks of the same size.
    tbloom: float
    #: How many items that were never added were asked for, and how many were called seen.
    asked: int = 0
    seen: int = 0


class WindowRate(NamedTuple):
    """The rates of a window of full slices."""

    slices: int
    items: int
    bits: int
    #: The rate of one slice.
    slice: float
    #: An item is called seen if any slice holds it: 1 - (1-p)^slices.
    union: float
    #: The paper's formula, as if all slices had to hold it: p^slices.
    product: float
    asked: int
    seen: int

    @property
    def measured(self) -> float:
        """The share of unknown items that were called seen."""
        return self.seen / self.asked


def best(items: int) -> Best:
    """The best size, and its rates as computed."""
    bits = sizing.whole_blocks(round(items * HASHES / math.log(2)), HASHES)
    return Best(
        items,
        bits,
        classic_rate(items, bits, HASHES),
        sizing.rate_at(items, bits, HASHES),
    )


def measure_best(client: redis.Redis, most: int, asked: int, reporter: Reporter) -> Iterator[Best]:
    """All sizes; measured on the server up to ``most`` items."""
    for items in SIZES:
        one = best(items)
        if items > most:
            yield one
            continue
        client.flushall()
        seen = _filter(client, "best", items, one.bits, slices=1)
        with reporter.count("Filling a filter of the best size", items, "items") as advance:
            _fill(seen.add_many, "item", items, advance)
        yield one._replace(asked=asked, seen=_count_seen(seen, asked))


def measure_overfilled(client: redis.Redis, asked: int, reporter: Reporter) -> WindowRate:
    """The rate of a window whose slices hold many more items than they have room for."""
    return measure_window(client, _ITEMS, _BITS, asked, reporter)


def measure_window(
    client: redis.Redis, items: int, bits: int, asked: int, reporter: Reporter
) -> WindowRate:
    """Fills the slices of a window, and asks it for items that were never added."""
    client.flushall()
    bits = sizing.whole_blocks(bits, HASHES)
    seen = _filter(client, "window", items, bits, slices=SLICES)
    with reporter.count("Filling a window", SLICES * items, "items") as advance:
        for number, slice in enumerate(seen.info().slices):  # the oldest first
            _fill(
                lambda some, label=slice.label: seen.import_many(some, label),  # type: ignore[misc]
                f"slice {number} item",
                items,
                lambda done, before=number * items: advance(before + done),  # type: ignore[misc]
            )
    rate = sizing.rate_at(items, bits, HASHES)
    union, product = sizing.window_rate([rate] * SLICES), rate**SLICES
    return WindowRate(SLICES, items, bits, rate, union, product, asked, _count_seen(seen, asked))


def _filter(client: redis.Redis, name: str, items: int, bits: int, slices: int) -> TimeBloom:
    # By the month: no slice ends while it is filled.
    return TimeBloom(
        client,
        f"paper-{name}",
        granularity="m",
        slices=slices,
        capacity=items,
        bits=bits,
        hashes=HASHES,
        grow=False,
    )


def _fill(
    add: Callable[[list[str]], object], prefix: str, count: int, advance: Callable[[int], None]
) -> None:
    for start in range(0, count, _BATCH):
        add([f"{prefix} {n}" for n in range(start, min(count, start + _BATCH))])
        advance(start)


def _count_seen(seen: TimeBloom, asked: int) -> int:
    """How many of that number of items, which were never added, are called seen."""
    return sum(
        sum(seen.contains_many(f"stranger {n}" for n in range(start, min(asked, start + _BATCH))))
        for start in range(0, asked, _BATCH)
    )
