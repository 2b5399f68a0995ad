"""``tbloom plan``: the memory of a filter, or the filter that fits into a given memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, cast

import click

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import formats, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

#: Memory of a fingerprint of 40 hex digits in Redis 7.0: as a member of a set, and as a key with a TTL.
#: Measured: docs/benchmarks.md, "Memory and false positives".
_SET_BYTES, _KEY_BYTES = 97, 134
#: Bytes that Redis adds to a string, in the same allocation.
_KEY_OVERHEAD = 10
#: More items than a filter may have.
_MOST = 1 << 50
#: The items per slice of a plan that is given no capacity.
_EXAMPLE = 1_000_000
_BITS = range(2, 33)
_HASHES = range(1, 9)
_NOTE = (
    "The rate of one full filter, by its bits per item and number of hashes (k), as the classic formula has it. "
    "*: tbloom's number of hashes for this size; the last column is the rate that it has then, in its blocks. "
    "best: the k of the lowest classic rate. Over a window the slices' rates add up: each of 7 slices may have a seventh."
)


@click.command(cls=Command, example="tbloom plan --capacity 1e8 --slices 7")
@options.parameters
@click.option(
    "--memory",
    type=numbers.size,
    help="memory for the window, such as 2GB: computes the capacity that fits, or with --capacity the error rate",
)
@click.option(
    "--table",
    is_flag=True,
    help="the error rate of one filter for 2 to 32 bits per item and 1 to 8 hashes, and tbloom's choice",
)
@options.as_json
def command(memory: int | None, *, table: bool, **parameters: Any) -> None:
    """Compute a filter's memory, or what fits into a given memory.

    Without --capacity, --bits and --memory, each slice is for 1,000,000 items.
    """
    if table:
        rows = error_rates()
        output.show(rows, lambda: _table(rows))
        return
    given = options.given(parameters)
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
        # What a new item sends to the append-only file, and to each replica: one by one, and in batches of 500. Measured: the
        # range of its block that changes, and the words of the commands.
        "log_bytes": 168 + 8 * config.hashes,
        "log_bytes_in_batches": 50 + 8 * config.hashes,
        # The server's time for a new item (us), about; measured on Redis 7.0, with 7 slices in docs/benchmarks.md. Each slice
        # takes a probe.
        "server_us": 13 + config.slices,
        "server_us_in_batches": 3 + config.slices,
    }


def _within(memory: int, given: dict[str, Any]) -> Config:
    """Return the filter of the largest capacity that fits into the memory; with a given capacity, that of the lowest error rate."""
    if "bits" in given or {"capacity", "error_rate"} <= given.keys():
        raise CommandError(
            "--memory: expected no --bits, and only one of --capacity and --error-rate; the other is computed"
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

    lost = f"{made['lost_per_slice_at_most']:,.1f} a slice"
    shards = "a key each, at most 8 MB" if made["shards"] > 1 else ""
    rows = {
        "capacity": (f"{made['capacity']:,}", "distinct items per slice"),
        "window": (formats.window(made["slices"], made["granularity"]), ""),
        "error rate": (formats.rate(made["error_rate"]), "at most, over the whole window"),
        "bits": (f"{made['bits']:,}", f"{made['bits_per_item']:.2f} an item"),
        "hashes": (f"{made['hashes']}", ""),
        "shards": (f"{made['shards']}", shards),
        "memory of a slice": (formats.size(made["slice_bytes"]), ""),
        "memory of the window": (formats.size(made["window_bytes"]), "when every slice is full"),
        "pages lost": (lost, "at most, with every slice full"),
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
    left = ("plan", "remark")
    cells = [
        dict(zip((left[0], "value", left[1]), (name, *row), strict=True))
        for name, row in rows.items()
    ]
    return output.table(cells, left=left)


def classic_rate(items: float, bits: int, hashes: int) -> float:
    """Return the rate of a classic Bloom filter: (1-e^(-kn/m))^k."""
    return float((-math.expm1(-hashes * items / bits)) ** hashes)


def error_rates() -> list[dict[str, Any]]:
    """Return the table: for each number of bits per item, the classic rates for 1 to 8 hashes, the number of hashes with the
    lowest one, and tbloom's number of hashes with the rate of its blocks."""
    return [
        {
            "bits_per_item": bits,
            "rates": [classic_rate(1, bits, hashes) for hashes in _HASHES],
            "best_hashes": min(range(1, bits + 1), key=lambda k: classic_rate(1, bits, k)),
            "tbloom_hashes": (hashes := _tbloom_hashes(bits)),
            "tbloom_rate": _tbloom_rate(bits, hashes),
        }
        for bits in _BITS
    ]


def _tbloom_hashes(bits: int) -> int:
    """Return the number of hashes that tbloom takes for the rate that it has with them; the lowest such rate."""

    def missed(hashes: int) -> tuple[int, float]:
        rate = _tbloom_rate(bits, hashes)
        return abs(sizing.hashes_for(rate) - hashes), rate

    return min(range(1, bits + 1), key=missed)


def _tbloom_rate(bits: int, hashes: int) -> float:
    return sizing.rate_of_load(sizing.block_step(hashes) * sizing.COLUMNS / bits, hashes)


def _table(rows: list[dict[str, Any]]) -> str:
    """Return the table, with three digits as the sources have it; on 80 columns, its last columns are in a second one."""
    shown = []
    for row in rows:
        rates = {f"k={k}": _three(rate) for k, rate in zip(_HASHES, row["rates"], strict=True)}
        if (chosen := f"k={row['tbloom_hashes']}") in rates:
            rates[chosen] = f"*{rates[chosen]}"
        shown.append(
            {
                "bits": str(row["bits_per_item"]),
                **rates,
                "best": str(row["best_hashes"]),
                "tbloom": str(row["tbloom_hashes"]),
                "rate": _three(row["tbloom_rate"]),
            }
        )
    return "\n".join([output.table(shown), "", output.sentence(_NOTE, dim=True)])


def _three(rate: float) -> str:
    """Return a rate with three digits, zeros included: ``0.400``, ``1.23e-06``."""
    return f"{rate:#.3g}"
