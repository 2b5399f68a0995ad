"""``tbloom plan``: how large a filter will be, or how much fits into so much memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tbloom.bloom import sizing
from tbloom.bloom.config import Config, configure
from tbloom.cli.kit import numbers, parameters, show, words
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

#: What a fingerprint of 40 hex digits takes in Redis 7.0: as a member of a set, and as a key with a TTL.
#: Measured: docs/benchmarks.md, "Memory, and what it buys".
_SET_BYTES, _KEY_BYTES = 97, 134
#: What a string has beside its bytes, in the same allocation.
_KEY_OVERHEAD = 10
_DAY_MS = 86_400_000
#: A slice fills up while it is current: the chance of a mistake is averaged over so many moments.
_MOMENTS = 100


@dataclass(frozen=True, slots=True)
class SliceCalls:
    """What a filter costs, and what its mistakes cost. Memory in bytes, as Redis allocates it."""

    granularity: str
    slices: int
    capacity: int
    error_rate: float
    bits: int
    hashes: int
    bits_per_item: float
    shards: int
    slice_bytes: int
    window_bytes: int
    #: New pages that are called seen, and so are not fetched, while each slice gets its capacity in new items.
    lost_per_day: float
    #: The most that the promised rate allows.
    lost_per_day_at_most: float
    #: The window's items, as members of a Redis set, or each as a key of its own (SET NX EX).
    set_bytes: int
    keys_bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the filter is like, --memory, --json."""
    parameters.add_arguments(parser)
    parser.add_argument(
        "--memory",
        type=numbers.memory,
        metavar="SIZE",
        help="what the window may take, such as 2GB: prints the capacity that fits; with --capacity, the error rate",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan."""
    given = parameters.given(arguments)
    made = plan(_config(given, arguments.memory))
    if arguments.json:
        show.print_json(asdict(made))
    else:
        show.console().print(_table(made))
    return 0


def plan(config: Config) -> SliceCalls:
    """What a filter with these parameters costs."""
    slice_bytes = _slice_bytes(config)
    items = config.capacity * config.slices
    per_day = config.capacity * _DAY_MS / _slice_ms(config)
    return SliceCalls(
        granularity=config.window.granularity,
        slices=config.slices,
        capacity=config.capacity,
        error_rate=config.error_rate,
        bits=config.bits,
        hashes=config.hashes,
        bits_per_item=config.bits / config.capacity,
        shards=config.shards,
        slice_bytes=slice_bytes,
        window_bytes=slice_bytes * config.slices,
        lost_per_day=per_day * _mean_rate(config),
        lost_per_day_at_most=per_day * config.error_rate,
        set_bytes=items * _SET_BYTES,
        keys_bytes=items * _KEY_BYTES,
    )


def _slice_bytes(config: Config) -> int:
    """What a full slice takes, as Redis allocates it."""
    return config.shards * sizing.allocated(sizing.key_bytes(config.shard_bits) + _KEY_OVERHEAD)


def _slice_ms(config: Config) -> float:
    """How long (ms) a slice lasts on average: months differ."""
    slices = config.window.live(0)
    return (slices[-1].end - slices[0].start) / len(slices)


def _mean_rate(config: Config) -> float:
    """The chance that a new item is called seen, averaged over the time in which a slice fills up."""
    full = sizing.rate_at(config.capacity, config.bits, config.hashes)
    moments = (config.capacity * (i + 0.5) / _MOMENTS for i in range(_MOMENTS))
    now = (sizing.rate_at(items, config.bits, config.hashes) for items in moments)
    return fmean(sizing.window_rate([*[full] * (config.slices - 1), rate]) for rate in now)


def _config(given: dict[str, Any], memory: int | None) -> Config:
    """The filter; with ``memory`` the largest one, or the one that makes the fewest mistakes, in so much."""
    if memory is None:
        return _sized(given)
    if "capacity" not in given:
        # An item takes a bit at least.
        found = _last(memory * 8, lambda items: _fitting(memory, given, capacity=items))
    elif "error_rate" not in given:
        rates = (10 ** (exponent / 100) for exponent in range(-1500, 0))
        found = next(
            (fits for rate in rates if (fits := _fitting(memory, given, error_rate=rate))), None
        )
    else:
        raise CommandError(
            "--memory: give --capacity or --error-rate, and the other one is worked out"
        )
    if found is None:
        raise CommandError(f"--memory: {words.size(memory)} is too little for such a filter")
    return found


def _sized(given: dict[str, Any]) -> Config:
    try:
        return configure("plan", **given)
    except ConfigError as error:
        if error.argument != "bits":
            raise
        message = f"--capacity: a slice for so many items needs {error.value:,} bits, expected {error.expected}"
        raise CommandError(message) from None


def _fitting(memory: int, given: dict[str, Any], **more: Any) -> Config | None:
    """The filter, if its window takes no more memory than that."""
    try:
        config = configure("plan", **given, **more)
    except ConfigError as error:
        if error.argument in {"bits", "capacity", "shards"}:  # more than a filter may have
            return None
        raise
    return config if _slice_bytes(config) * config.slices <= memory else None


def _last(most: int, fitting: Callable[[int], Config | None]) -> Config | None:
    """What fits for the largest number up to ``most`` for which something does, by bisection."""
    low, high, found = 0, most, None
    while low < high:
        middle = (low + high + 1) // 2
        fits = fitting(middle)
        if fits is None:
            high = middle - 1
        else:
            low, found = middle, fits
    return found


def _table(made: SliceCalls) -> Table:
    shards = "a key each, of 32 MB at most" if made.shards > 1 else ""
    return show.facts(
        ("capacity", f"{made.capacity:,}", "distinct items per slice"),
        ("window", f"{made.slices} x {made.granularity}", ""),
        ("error rate", words.rate(made.error_rate), "at most, over the whole window"),
        ("bits", f"{made.bits:,}", f"{made.bits_per_item:.2f} an item"),
        ("hashes", f"{made.hashes}", ""),
        ("shards", f"{made.shards}", shards),
        ("memory of a slice", words.size(made.slice_bytes), ""),
        ("memory of the window", words.size(made.window_bytes), "when every slice is full"),
        (
            "pages lost",
            f"{made.lost_per_day:,.1f} a day",
            f"expected, when every slice is full; {made.lost_per_day_at_most:,.1f} at most",
        ),
        ("as a Redis set", words.size(made.set_bytes), _times(made.set_bytes, made)),
        ("as SET NX EX", words.size(made.keys_bytes), _times(made.keys_bytes, made)),
    )


def _times(size: int, made: SliceCalls) -> str:
    return f"{size / made.window_bytes:.0f} times as much, for fingerprints of 40 characters"
