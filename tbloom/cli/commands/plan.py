"""``tbloom plan``: the memory of a filter, the filter that fits into a given memory, or the Redis for a number of links a second."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from typing import Any

import click

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import formats, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.costs import costs
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError
from tbloom.window import window_of

#: Memory of a fingerprint of 40 hex digits in Redis 7.0, as a member of a set.
#: Measured: docs/benchmarks.md, "Memory and false positives".
_SET_BYTES = 97
#: Bytes that Redis adds to a string, in the same allocation.
_KEY_OVERHEAD = 10
#: More items than a filter may have.
_MOST = 1 << 50
#: The items per slice of a plan that is given no capacity.
_EXAMPLE = 1_000_000
#: How busy a core of Redis may be, so that a peak makes nobody wait.
_BUSY = 0.7
_DAY_SECONDS = 86_400


@click.command(cls=Command, example="tbloom plan --capacity 1e8 --slices 7")
@click.option(
    "--memory",
    type=numbers.size,
    help="memory for the window, such as 2GB: computes the capacity that fits",
)
@click.option(
    "--links",
    type=numbers.rate,
    metavar="RATE",
    help="links that are asked about, such as 250k/s: computes cores of Redis, shards, memory and bytes to the log",
)
@click.option("--pages", type=numbers.rate, metavar="RATE", help="the same by pages, such as 5k/s")
@click.option(
    "--links-per-page",
    type=numbers.count,
    metavar="N",
    default="50",
    help="links of a page, which one call asks about (50)",
)
@click.option(
    "--seen",
    type=numbers.share,
    metavar="PERCENT",
    default="90%",
    help="share of the links that were seen before (90%)",
)
@options.parameters
@options.as_json
def command(
    *,
    memory: int | None,
    links: float | None,
    pages: float | None,
    links_per_page: int,
    seen: float,
    **parameters: Any,
) -> None:
    """Compute a filter's memory, or the Redis that a crawl needs.

    Without --capacity, --bits, --memory, --links and --pages, each slice is for 1,000,000 items. Processor times are those of
    the benchmarks' server.
    """
    given = options.given(parameters)
    sizes = {f"--{name}": name in given for name in ("capacity", "bits")}
    sizes |= {"--memory": bool(memory), "--links": bool(links), "--pages": bool(pages)}
    named = [option for option, is_given in sizes.items() if is_given]
    if len(named) > 1:
        raise CommandError(f"{named[0]}: expected no {named[1]}: one of them says the capacity")
    if given.get("capacity", 0) is None:  # auto
        del given["capacity"]
    links = pages * links_per_page if pages else links
    if links:
        config = _for_rate(links * (1 - seen), given, named[0])
        made = _carrying(config, links, links_per_page, seen, may_shard="shards" not in given)
    elif memory:
        made = _plan(_within(memory, given))
    else:
        size = {} if "bits" in given else {"capacity": _EXAMPLE}
        made = _plan(configure("plan", **size | given))
    output.show(made, lambda: _text(made))


def _slice_bytes(config: Config) -> int:
    """Return the memory of a full slice, as Redis allocates it."""
    return config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits) + _KEY_OVERHEAD)


def _plan(config: Config) -> dict[str, Any]:
    """Return the memory of a filter (bytes, as Redis allocates it), and the pages lost to its errors."""
    size = _slice_bytes(config)
    names = ("slices", "capacity", "error_rate", "bits", "hashes", "shards")
    return {
        "granularity": config.window.granularity,
        **{name: getattr(config, name) for name in names},
        "slice_bytes": size,
        "window_bytes": size * config.slices,
        # Of as many new pages as a slice is made for, those that are called seen, so not fetched.
        "lost_per_slice_at_most": config.first_capacity * config.error_rate,
        # The window's items as members of a Redis set.
        "set_bytes": config.first_capacity * config.slices * _SET_BYTES,
    }


def _for_rate(new: float, given: dict[str, Any], option: str) -> Config:
    """Return the filter whose slices have room for so many new links a second."""
    window = window_of(given.get("granularity", "d"), given.get("slices"), given.get("tz", "UTC"))
    if window.granularity is None:
        raise CommandError(
            f"{option}: expected a window, because a filter that never forgets gets full; got --granularity none"
        )
    period = window.slice_at(0)
    capacity = max(1, round(new * (period.end - period.start) / 1000))
    try:
        return configure("plan", capacity=capacity, **given)
    except ConfigError as error:
        if error.argument != "capacity":
            raise
        raise CommandError(
            f"{option}: expected fewer new links than {capacity:,} in a slice: {error.expected}"
        ) from None


def _carrying(
    config: Config, links: float, links_per_page: int, seen: float, *, may_shard: bool
) -> dict[str, Any]:
    """Return the plan of the filter, with the Redis servers for these links, and what they cost."""
    masters, needed = 0, 1
    while needed > masters:
        masters = needed
        # The masters of a cluster share the shards evenly. More shards take more calls, so the loop computes again.
        if may_shard and masters > 1:
            config = replace(config, shards=config.shards_over(masters))
        cost = costs(config, links_per_page, 1 - seen, masters)
        cores = links * cost.server_us / 1e6
        needed = math.ceil(cores / _BUSY)
    if config.shards < masters:
        raise CommandError(
            f"--shards: expected {masters} or more, one for each Redis server that these links need, got {config.shards}"
        )
    return _plan(config) | {
        "masters": masters,
        "cores": cores,
        "calls_per_page": cost.calls * links_per_page,
        "log_bytes_per_day": links * (1 - seen) * _DAY_SECONDS * cost.log_bytes,
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
    """Return whether the window of the filter fits into the memory."""
    try:
        config = configure("plan", capacity=capacity, **given)
    except ConfigError as error:
        if error.argument in {"bits", "capacity", "shards"}:  # more than a filter may have
            return False
        raise
    return _slice_bytes(config) * config.slices <= memory


def _text(made: dict[str, Any]) -> str:
    size, shards = formats.size, made["shards"]
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
        ("pages lost", f"{made['lost_per_slice_at_most']:,.1f} a slice", "at most, if it is full"),
        ("as a Redis set", size(made["set_bytes"]), times),
    ]
    if "masters" in made:
        busy = f"a core each, {100 * _BUSY:.0f} % busy at most"
        log = f"{size(made['log_bytes_per_day'])} a day"
        rows += [
            ("script calls", f"{made['calls_per_page']:,.0f}", "for the links of a page"),
            ("cores of Redis", f"{made['cores']:.2f}", ""),
            ("Redis servers", f"{made['masters']}", busy),
            ("to the log", log, "and as much to each replica"),
        ]
    shown = [dict(zip(("plan", "value", "remark"), row, strict=True)) for row in rows]
    return output.table(shown, left=("plan", "remark"))
