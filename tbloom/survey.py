"""The flow behind ``info()``: reads what a filter holds, in commands too short to be felt."""

from __future__ import annotations

from tbloom.calls import CALLS_AT_ONCE, Command, Flow, ScriptCall, chunks, deliver, text
from tbloom.clock import ServerClock
from tbloom.config import Config
from tbloom.errors import ConfigMismatch
from tbloom.info import FilterInfo, SliceInfo
from tbloom.scripts import CONTAINS
from tbloom.sizing import HEADER_BITS
from tbloom.window import Slice, from_ms

#: BITCOUNT reads so many bytes in about a millisecond.
_COUNT_BYTES = 1 << 22


def ask_time(config: Config, clock: ServerClock) -> Flow[None]:
    """Has the clock learn the time of the server that holds the filter.

    Not by TIME, which a cluster's client would send to any node: no instant lies in a slice that
    ends where it begins, so the script replies with its time.
    """
    call = ScriptCall(CONTAINS, (config.keys.config,), (config.stored, 0, 0))
    [[_, now]] = yield from deliver([call])
    clock.learn(now)


def info(config: Config, clock: ServerClock) -> Flow[FilterInfo]:
    """What the filter holds, slice by slice."""
    yield from ask_time(config, clock)
    now = clock.now()
    [stored] = yield from deliver([Command(("GET", config.keys.config))])
    if stored is not None and text(stored) != config.stored:
        raise ConfigMismatch(config.name, config.differences(text(stored)))
    slices = []
    for slice in config.window.live(now):
        slices.append((yield from _slice_info(config, slice, now)))  # noqa: PERF401 - it yields
    return FilterInfo(
        name=config.name,
        granularity=config.window.granularity,
        tz=config.window.tz,
        capacity=config.capacity,
        promised_error_rate=config.error_rate,
        bits=config.bits,
        hashes=config.hashes,
        slices=tuple(slices),
    )


def _slice_info(config: Config, slice: Slice, now: int) -> Flow[SliceInfo]:
    key, zone = config.keys.slice(slice.label), config.window.zone
    [[items], size, ttl] = yield from deliver(
        [
            Command(("BITFIELD_RO", key, "GET", "u48", "0")),
            Command(("MEMORY USAGE", key)),
            Command(("PTTL", key)),
        ]
    )
    fill_ratio = (yield from _count_bits(config, key)) / config.bits if items else 0.0
    return SliceInfo(
        label=slice.label,
        start=from_ms(slice.start, zone),
        end=from_ms(slice.end, zone),
        expires=from_ms(now + ttl, zone) if ttl >= 0 else None,
        items=items,
        fill_ratio=fill_ratio,
        bytes=size or 0,
        error_rate=fill_ratio**config.hashes,
    )


def _count_bits(config: Config, key: str) -> Flow[int]:
    """How many of the slice's bits are set."""
    header = HEADER_BITS // 8
    size = header + -(-config.bits // 8)
    calls = [
        Command(("BITCOUNT", key, start, min(start + _COUNT_BYTES, size) - 1))
        for start in range(header, size, _COUNT_BYTES)
    ]
    counts: list[int] = []
    for some in chunks(calls, CALLS_AT_ONCE):
        counts += yield from deliver(some)
    return sum(counts)
