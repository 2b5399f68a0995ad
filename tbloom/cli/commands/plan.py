"""``tbloom plan``: the memory of a filter, or the filter that fits into a given memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import click

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import formats, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

#: Memory of a fingerprint of 40 hex digits in Redis 7.0, as a member of a set.
#: Measured: docs/benchmarks.md, "Memory and false positives".
_SET_BYTES = 97
#: Bytes that Redis adds to a string, in the same allocation.
_KEY_OVERHEAD = 10
#: What is kept free, beside the window: half as much again, of which half is for growth and half for pages that wait, and what
#: an empty Redis and its connections take.
_ROOM, _WAITING_ROOM, _REDIS_BYTES = 0.5, 0.25, 4 << 20
#: Memory of a page that waits. Measured: docs/benchmarks.md, "A fleet of crawlers".
_PAGE_BYTES = 254
#: More items than a filter may have.
_MOST = 1 << 50
#: The items per slice of a plan that is given no capacity.
_EXAMPLE = 1_000_000


@click.command(cls=Command, example="tbloom plan --capacity 1e8 --slices 7")
@click.option(
    "--memory",
    type=numbers.size,
    help="the server's maxmemory, such as 2GB: computes the capacity that fits, with room for crawls",
)
@options.parameters
@options.as_json
def command(*, memory: int | None, **parameters: Any) -> None:
    """Compute a filter's memory.

    Without --capacity and --memory, each slice is for 1,000,000 items.
    """
    given = options.given(parameters)
    if memory and "capacity" in given:
        raise CommandError("--capacity: expected no --memory: one of them says the capacity")
    if given.get("capacity", 0) is None:  # auto
        del given["capacity"]
    if memory:
        config = _within(memory, given)
    else:
        config = configure("plan", **{"capacity": _EXAMPLE, **given})
    made = _plan(config)
    output.show(made, lambda: _text(made))


def _slice_bytes(config: Config) -> int:
    """Return the memory of a full slice, as Redis allocates it."""
    return config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits) + _KEY_OVERHEAD)


def _maxmemory(config: Config) -> int:
    """Return the memory that a server needs for the window, its growth and the pages that wait."""
    return math.ceil(_slice_bytes(config) * config.slices * (1 + _ROOM)) + _REDIS_BYTES


def _plan(config: Config) -> dict[str, Any]:
    """Return the memory of a filter (bytes, as Redis allocates it), and the pages lost to its errors."""
    size = _slice_bytes(config)
    window = size * config.slices
    names = ("slices", "capacity", "error_rate", "bits", "hashes", "shards")
    return {
        "granularity": config.window.granularity,
        **{name: getattr(config, name) for name in names},
        "slice_bytes": size,
        "window_bytes": window,
        "maxmemory_bytes": _maxmemory(config),
        "waiting_pages": int(window * _WAITING_ROOM / _PAGE_BYTES),
        # Of as many new pages as a slice is made for, those that are called seen, so not fetched.
        "lost_per_slice_at_most": config.first_capacity * config.error_rate,
        # The window's items as members of a Redis set.
        "set_bytes": config.first_capacity * config.slices * _SET_BYTES,
    }


def _within(memory: int, given: dict[str, Any]) -> Config:
    """Return the filter of the largest capacity that fits into the memory."""
    found = bisect_right(
        range(1, _MOST), x=False, key=lambda capacity: not _fits(memory, capacity, given)
    )
    if not found:
        raise CommandError(f"--memory: {formats.size(memory)} is too little for such a filter")
    return configure("plan", capacity=found, **given)


def _fits(memory: int, capacity: int, given: dict[str, Any]) -> bool:
    """Return whether the filter fits into the memory, with room."""
    try:
        config = configure("plan", capacity=capacity, **given)
    except ConfigError as error:
        if error.argument in {"capacity", "shards"}:  # more than a filter may have
            return False
        raise
    return _maxmemory(config) <= memory


def _text(made: dict[str, Any]) -> str:
    size, shards, waiting = formats.size, made["shards"], made["waiting_pages"]
    times = f"{made['set_bytes'] / made['window_bytes']:.0f} times as much, fingerprints in hex"
    rows = [
        ("capacity", f"{made['capacity']:,}", "distinct items per slice"),
        ("window", formats.window(made["slices"], made["granularity"]), ""),
        ("error rate", formats.rate(made["error_rate"]), "at most, over the whole window"),
        ("bits", f"{made['bits']:,}", ""),
        ("hashes", f"{made['hashes']}", ""),
        ("shards", f"{shards:,}", f"a key each, {size(made['slice_bytes'] / shards)}"),
        ("memory of a slice", size(made["slice_bytes"]), ""),
        ("memory of the window", size(made["window_bytes"]), "when every slice is full"),
        (
            "maxmemory of a Redis",
            size(made["maxmemory_bytes"]),
            f"room to grow, and {waiting:,} waiting pages",
        ),
        ("pages lost", f"{made['lost_per_slice_at_most']:,.1f} a slice", "at most, if it is full"),
        ("as a Redis set", size(made["set_bytes"]), times),
    ]
    shown = [dict(zip(("plan", "value", "remark"), row, strict=True)) for row in rows]
    return output.table(shown, left=("plan", "remark"))
