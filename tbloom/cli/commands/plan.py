"""``tbloom plan``: the memory of a filter, the filter that fits into a given memory, or the Redis for a number of links a second."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import click

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import costs, formats, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError
from tbloom.window import window_of

#: Memory of a fingerprint of 40 hex digits in Redis 7.0: as a member of a set, and as a key with a TTL.
#: Measured: docs/benchmarks.md, "Memory and false positives".
_SET_BYTES, _KEY_BYTES = 97, 134
#: Bytes that Redis adds to a string, in the same allocation.
_KEY_OVERHEAD = 10
#: More items than a filter may have.
_MOST = 1 << 50
#: The items per slice of a plan that is given no capacity.
_EXAMPLE = 1_000_000
#: The share of links that were seen before, and the links of a page, unless they are given.
_SEEN, _LINKS_PER_PAGE = 0.9, 50
#: The links of a call for which a plan has the costs, beside those of a page.
_BATCHES = 1, 500, 5000
#: How busy a core of Redis may be, so that a peak makes nobody wait.
_BUSY = 0.7
_DAY_SECONDS = 86_400
#: Fewer links a second are printed with digits after the point.
_LEAST_WHOLE = 1000
_COSTS_NOTE = "A Redis uses one core. Each replica gets what goes to the log, too."


@click.command(cls=Command, example="tbloom plan --capacity 1e8 --slices 7")
@options.parameters
@click.option(
    "--memory",
    type=numbers.size,
    help="memory for the window, such as 2GB: computes the capacity that fits, or with --capacity the error rate",
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
    help=f"links of a page, which one call asks about ({_LINKS_PER_PAGE})",
)
@click.option(
    "--seen",
    type=numbers.share,
    metavar="PERCENT",
    help=f"share of the links that were seen before ({_SEEN:.0%})",
)
@options.as_json
def command(*, memory: int | None, **parameters: Any) -> None:
    """Compute a filter's memory, or the Redis that a crawl needs.

    Without --capacity, --bits, --memory, --links and --pages, each slice is for 1,000,000 items. With --links or --pages, the
    processor time is that of the benchmarks' server.
    """
    given, traffic = options.given(parameters), _traffic(parameters)
    if traffic is not None:
        others = given.keys() & {"capacity", "bits"}
        others |= {"memory"} if memory else set()
        if others:
            raise CommandError(
                f"--{min(others)}: expected no {traffic.option}, from which the capacity follows"
            )
        carried = _carrying(traffic, given)
        output.show(carried, lambda: _carrying_text(carried))
        return
    if given.get("capacity", 0) is None:
        del given["capacity"]
    if memory is None and "bits" not in given:
        given.setdefault("capacity", _EXAMPLE)
    config = configure("plan", **given) if memory is None else _within(memory, given)
    made = _plan(config)
    output.show(made, lambda: _text(made))


def slice_bytes(config: Config) -> int:
    """Return the memory of a full slice, as Redis allocates it."""
    return config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits) + _KEY_OVERHEAD)


def _plan(config: Config) -> dict[str, Any]:
    """Return the memory of a filter (bytes, as Redis allocates it), and the pages lost to its errors."""
    size = slice_bytes(config)
    one, many = (costs.costs(config, links, 1.0) for links in (1, 500))
    items = config.first_capacity * config.slices
    names = ("slices", "capacity", "error_rate", "bits", "hashes", "shards")
    return {
        "granularity": config.window.granularity,
        **{name: getattr(config, name) for name in names},
        "bits_per_item": config.bits / config.first_capacity,
        "slice_bytes": size,
        "window_bytes": size * config.slices,
        # Of as many new pages as a slice is made for, those that are called seen, so not fetched.
        "lost_per_slice_at_most": config.first_capacity * config.error_rate,
        # The window's items as members of a Redis set, and as keys (SET NX EX).
        "set_bytes": items * _SET_BYTES,
        "keys_bytes": items * _KEY_BYTES,
        # What a new item sends to the append-only file, and to each replica: one by one, and in batches of 500.
        "log_bytes": round(one.log_bytes),
        "log_bytes_in_batches": round(many.log_bytes),
        # The server's time for a new item (us), about.
        "server_us": round(one.server_us),
        "server_us_in_batches": round(many.server_us),
    }


@dataclass(frozen=True, slots=True)
class Traffic:
    """The links a second that crawlers ask about, the share of them that was seen before, and the links of a page."""

    #: The option that gave the links.
    option: str
    links: float
    seen: float
    links_per_page: int

    @property
    def new(self) -> float:
        """The share of the links that are new."""
        return 1 - self.seen


def _traffic(given: dict[str, Any]) -> Traffic | None:
    """Return the links that the options name; None if they name none."""
    links, pages, per_page, seen = map(given.get, ("links", "pages", "links_per_page", "seen"))
    per_page, share = per_page or _LINKS_PER_PAGE, _SEEN if seen is None else seen
    if links is not None and pages is not None:
        raise CommandError("--links: expected no --pages, from which the links follow")
    if links is not None:
        return Traffic("--links", links, share, per_page)
    if pages is not None:
        return Traffic("--pages", pages * per_page, share, per_page)
    alone = {"links-per-page": given.get("links_per_page"), "seen": seen}
    for name in [name for name, value in alone.items() if value is not None]:
        raise CommandError(f"--{name}: expected --links or --pages with it, such as --links 250k/s")
    return None


def _carrying(traffic: Traffic, given: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of the filter that has room for these links, with what they cost: by the number of links a call."""
    config = _for_rate(traffic, given)

    def cost(size: int) -> costs.Costs:
        return costs.costs(config, size, traffic.new, masters)

    def cores(size: int) -> float:
        return traffic.links * cost(size).server_us / 1e6

    masters = 1
    while (needed := math.ceil(cores(traffic.links_per_page) / _BUSY)) > masters:
        masters = needed
        # The masters of a cluster share the shards evenly. More shards take more calls, so the loop computes again.
        if "shards" not in given:
            config = replace(config, shards=config.shards_over(masters))
    if config.shards < masters:
        raise CommandError(
            f"--shards: expected {masters} or more, one for each Redis server that these links need, got {config.shards}"
        )
    daily = traffic.links * traffic.new * _DAY_SECONDS
    return _plan(config) | {
        "links_per_second": traffic.links,
        "seen": traffic.seen,
        "links_per_page": traffic.links_per_page,
        "masters": masters,
        "by_links_per_call": [
            {
                "links_per_call": size,
                "calls_per_link": cost(size).calls,
                "cores": cores(size),
                "log_bytes_per_new_link": cost(size).log_bytes,
                "log_bytes_per_day": daily * cost(size).log_bytes,
            }
            for size in sorted({traffic.links_per_page, *_BATCHES})
        ],
    }


def _for_rate(traffic: Traffic, given: dict[str, Any]) -> Config:
    """Return the filter whose slices have room for the new links."""
    window = window_of(given.get("granularity", "d"), given.get("slices"), given.get("tz", "UTC"))
    if window.granularity is None:
        raise CommandError(
            f"{traffic.option}: expected a window, because a filter that never forgets gets full; got --granularity none"
        )
    period = window.slice_at(0)
    capacity = max(1, round(traffic.links * traffic.new * (period.end - period.start) / 1000))
    try:
        return configure("plan", capacity=capacity, **given)
    except ConfigError as error:
        if error.argument != "capacity":
            raise
        raise CommandError(
            f"{traffic.option}: expected fewer new links than {capacity:,} in a slice: {error.expected}"
        ) from None


def _carrying_text(made: dict[str, Any]) -> str:
    links, per_page, seen = made["links_per_second"], made["links_per_page"], made["seen"]
    digits = 0 if links >= _LEAST_WHOLE else 3
    rows = {
        "links": (
            f"{links:,.{digits}f}/s",
            f"{links / per_page:,.{digits}f} pages a second, {formats.counted(per_page, 'link')} each",
        ),
        "new links": (
            f"{links * (1 - seen):,.{digits}f}/s",
            f"{100 * seen:.4g} % were seen before",
        ),
        "capacity": (f"{made['capacity']:,}", "new links per slice"),
        "window": (formats.window(made["slices"], made["granularity"]), ""),
        "error rate": (formats.rate(made["error_rate"]), "at most, over the whole window"),
        "memory of the window": (formats.size(made["window_bytes"]), "when every slice is full"),
        "pages lost": _lost(made),
        "shards": (f"{made['shards']:,}", _keys(made)),
        "Redis servers": (
            f"{made['masters']}",
            f"each at most {_BUSY:.0%} busy, with a page's links a call".replace("%", " %"),
        ),
    }
    costs_of_calls = [
        {
            "links a call": f"{row['links_per_call']:,}",
            "script calls": f"{row['calls_per_link'] * row['links_per_call']:,.0f}",
            "cores of Redis": f"{row['cores']:.2f}",
            "to the log a day": formats.size(row["log_bytes_per_day"]),
        }
        for row in made["by_links_per_call"]
    ]
    return "\n\n".join(
        [_plan_table(rows), output.table(costs_of_calls), output.sentence(_COSTS_NOTE, "dim")]
    )


def _keys(made: dict[str, Any]) -> str:
    size = formats.size(made["slice_bytes"] / made["shards"])
    return f"a key each, {size}" if made["shards"] > 1 else ""


def _lost(made: dict[str, Any]) -> tuple[str, str]:
    return f"{made['lost_per_slice_at_most']:,.1f} a slice", "at most, with every slice full"


def _plan_table(rows: dict[str, tuple[str, str]]) -> str:
    """Return a table of values, each with its name and a remark."""
    left = ("plan", "remark")
    cells = [
        dict(zip((left[0], "value", left[1]), (name, *row), strict=True))
        for name, row in rows.items()
    ]
    return output.table(cells, left=left)


def _within(memory: int, given: dict[str, Any]) -> Config:
    """Return the filter of the largest capacity that fits into the memory; with a given capacity, that of the lowest error rate."""
    if given.keys() & {"bits", "hashes"} or {"capacity", "error_rate"} <= given.keys():
        raise CommandError(
            "--memory: expected no --bits or --hashes, and only one of --capacity and --error-rate; the other is computed"
        )
    name, values = "capacity", cast("Sequence[float]", range(1, _MOST))
    if name in given:
        name, values = "error_rate", [10 ** (exponent / 100) for exponent in range(-1, -1501, -1)]
    found = bisect_right(
        values, x=False, key=lambda value: not _fits(memory, {**given, name: value})
    )
    if not found:
        raise CommandError(f"--memory: {formats.size(memory)} is too little for such a filter")
    return configure("plan", **{**given, name: values[found - 1]})


def _fits(memory: int, given: dict[str, Any]) -> bool:
    """Return whether the window of the filter fits into the memory."""
    try:
        config = configure("plan", **given)
    except ConfigError as error:
        if error.argument in {"bits", "capacity", "shards"}:  # more than a filter may have
            return False
        raise
    return slice_bytes(config) * config.slices <= memory


def _text(made: dict[str, Any]) -> str:
    def compared(size: int) -> tuple[str, str]:
        times = size / made["window_bytes"]
        return formats.size(size), f"{times:.0f} times as much, fingerprints in hex"

    rows = {
        "capacity": (f"{made['capacity']:,}", "distinct items per slice"),
        "window": (formats.window(made["slices"], made["granularity"]), ""),
        "error rate": (formats.rate(made["error_rate"]), "at most, over the whole window"),
        "bits": (f"{made['bits']:,}", f"{made['bits_per_item']:.2f} an item"),
        "hashes": (f"{made['hashes']}", ""),
        "shards": (f"{made['shards']:,}", _keys(made)),
        "memory of a slice": (formats.size(made["slice_bytes"]), ""),
        "memory of the window": (formats.size(made["window_bytes"]), "when every slice is full"),
        "pages lost": _lost(made),
        "to the log": (
            f"{made['log_bytes']} B",
            f"a new item, replicas too; {made['log_bytes_in_batches']} B in batches",
        ),
        "server's time": (
            f"{made['server_us']} us",
            f"a new item, about; {made['server_us_in_batches']} us in batches",
        ),
        "as a Redis set": compared(made["set_bytes"]),
        "as SET NX EX": compared(made["keys_bytes"]),
    }
    return _plan_table(rows)
