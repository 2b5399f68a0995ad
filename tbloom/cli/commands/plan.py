"""``tbloom plan``: the memory of a filter, or the filter that fits into a given memory."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import error_rates, formats, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Memory of a fingerprint of 40 hex digits in Redis 7.0: as a member of a set, and as a key with a TTL.
#: Measured: docs/benchmarks.md, "Memory, and what it buys".
_SET_BYTES, _KEY_BYTES = 97, 134
#: Bytes that Redis adds to a string's own, in the same allocation.
_KEY_OVERHEAD = 10
_DAY_MS = 86_400_000
#: The items per slice of a plan that is given no capacity.
_EXAMPLE = 1_000_000
#: The error rate of a slice that fills up is averaged over this number of moments.
_MOMENTS = 100


@click.command(cls=Command, example="tbloom plan --capacity 1e8 --slices 7")
@options.parameters
@click.option(
    "--memory",
    type=numbers.memory,
    metavar="SIZE",
    help="memory for the window, such as 2GB: computes the capacity that fits, or with --capacity the error rate",
)
@click.option(
    "--table",
    is_flag=True,
    help="the error rate of one filter for 2 to 32 bits per item and 1 to 8 hashes, with tbloom's choice marked",
)
@options.as_json
def command(memory: int | None, *, table: bool, as_json: bool, **parameters: Any) -> None:
    """Computes the memory of a filter, or what fits into a given memory."""
    given = options.given(parameters)
    if table:
        if given or memory:
            raise CommandError("--table: give no parameters; it is the same for all filters")
        rows = error_rates.rows()
        found = [row._asdict() for row in rows]
        output.show(found, lambda: error_rates.text(rows), as_json=as_json)
        return
    if given.get("capacity", 0) is None:
        del given["capacity"]
    is_example = not ({"capacity", "bits"} & given.keys() or memory)
    if is_example:
        given["capacity"] = _EXAMPLE
    made = plan(_config(given, memory))
    output.show(made, lambda: _text(made, is_example=is_example), as_json=as_json)


def plan(config: Config) -> dict[str, Any]:
    """The memory of a filter (bytes, as Redis allocates it), and the pages lost to its errors."""
    size = slice_bytes(config)
    items = config.first_capacity * config.slices
    names = ("granularity", "slices", "capacity", "error_rate", "bits", "hashes", "shards")
    # As many new items in each slice as its capacity.
    is_window = config.granularity is not None
    span = "per_day" if is_window else "until_full"
    new = config.first_capacity * (_DAY_MS / _slice_ms(config) if is_window else 1)
    return {
        **{name: getattr(config, name) for name in names},
        "granularity": config.window.granularity,
        "bits_per_item": config.bits / config.first_capacity,
        "slice_bytes": size,
        "window_bytes": size * config.slices,
        # New pages that are called seen, so not fetched; and their number at the promised error rate.
        f"lost_{span}": new * _mean_rate(config),
        f"lost_{span}_at_most": new * config.error_rate,
        # The window's items as members of a Redis set, and as keys (SET NX EX).
        "set_bytes": items * _SET_BYTES,
        "keys_bytes": items * _KEY_BYTES,
    }


def slice_bytes(config: Config) -> int:
    """Memory of a full slice, as Redis allocates it."""
    return config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits) + _KEY_OVERHEAD)


def _slice_ms(config: Config) -> float:
    """Mean length of a slice (ms): months differ."""
    slices = config.window.live(0)
    return (slices[-1].end - slices[0].start) / len(slices)


def _mean_rate(config: Config) -> float:
    """Chance that a new item is called seen, averaged over the time in which a slice fills up."""
    full = sizing.rate_at(config.first_capacity, config.bits, config.hashes)
    moments = (config.first_capacity * (i + 0.5) / _MOMENTS for i in range(_MOMENTS))
    now = (sizing.rate_at(items, config.bits, config.hashes) for items in moments)
    return fmean(sizing.window_rate([*[full] * (config.slices - 1), rate]) for rate in now)


def _config(given: dict[str, Any], memory: int | None) -> Config:
    """The filter; with ``memory``, the one of the largest capacity or lowest error rate that fits."""
    if memory is None:
        return _sized(given)
    if "bits" in given:
        raise CommandError("--memory: not with --bits, which give the memory already")
    if "capacity" not in given:
        # An item takes at least a bit.
        found = _largest(memory * 8, lambda items: _fitting(memory, given, capacity=items))
    elif "error_rate" not in given:
        rates = (10 ** (exponent / 100) for exponent in range(-1500, 0))
        found = next(
            (fits for rate in rates if (fits := _fitting(memory, given, error_rate=rate))), None
        )
    else:
        raise CommandError(
            "--memory: give only one of --capacity and --error-rate; the other is computed"
        )
    if found is None:
        raise CommandError(f"--memory: {formats.size(memory)} is too little for such a filter")
    return found


def _sized(given: dict[str, Any]) -> Config:
    try:
        return configure("plan", **given)
    except ConfigError as error:
        if error.argument != "bits" or "bits" in given:
            raise
        raise CommandError(
            f"--capacity: a slice needs {error.value:,} bits, expected {error.expected}"
        ) from None


def _fitting(memory: int, given: dict[str, Any], **more: Any) -> Config | None:
    """The filter, if its window fits into the memory."""
    try:
        config = configure("plan", **given, **more)
    except ConfigError as error:
        if error.argument in {"bits", "capacity", "shards"}:  # more than a filter may have
            return None
        raise
    return config if slice_bytes(config) * config.slices <= memory else None


def _largest(limit: int, fitting: Callable[[int], Config | None]) -> Config | None:
    """The filter for the largest number up to ``limit`` for which one fits, by bisection."""
    low, high, found = 0, limit, None
    while low < high:
        middle = (low + high + 1) // 2
        fits = fitting(middle)
        if fits is None:
            high = middle - 1
        else:
            low, found = middle, fits
    return found


def _text(made: dict[str, Any], *, is_example: bool) -> str:
    def compared(size: int) -> tuple[str, str]:
        times = size / made["window_bytes"]
        return formats.size(size), f"{times:.0f} times as much (fingerprints of 40 digits)"

    span = "per_day" if made["granularity"] else "until_full"
    lost, most = made[f"lost_{span}"], made[f"lost_{span}_at_most"]
    without = "; without --capacity, a slice is made for what the last one held"
    return output.facts(
        (
            "capacity",
            f"{made['capacity']:,}",
            f"distinct items per slice{without if is_example else ''}",
        ),
        ("window", formats.window(made["slices"], made["granularity"]), ""),
        ("error rate", formats.rate(made["error_rate"]), "at most, over the whole window"),
        ("bits", f"{made['bits']:,}", f"{made['bits_per_item']:.2f} an item"),
        ("hashes", f"{made['hashes']}", ""),
        ("shards", f"{made['shards']}", "a key each, at most 32 MB" if made["shards"] > 1 else ""),
        ("memory of a slice", formats.size(made["slice_bytes"]), ""),
        ("memory of the window", formats.size(made["window_bytes"]), "when every slice is full"),
        (
            "pages lost",
            f"{lost:,.1f} {span.replace('per_', 'a ').replace('_', ' ')}",
            f"with every slice full; at most {most:,.1f}",
        ),
        ("as a Redis set", *compared(made["set_bytes"])),
        ("as SET NX EX", *compared(made["keys_bytes"])),
    )
