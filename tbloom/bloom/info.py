"""The result of ``info()``, and the flow that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from math import expm1, fsum
from typing import Any, NamedTuple

from tbloom.bloom import sizing
from tbloom.bloom.config import Config
from tbloom.bloom.layout import Layout, Part
from tbloom.bloom.sizing import rate_at, window_rate
from tbloom.engine.flow import Call, Flow, pairs, request_all, text, together
from tbloom.engine.server import (
    ServerClock,
    Told,
    ask_servers,
    ask_time,
    check_stored,
    memory,
    total,
)
from tbloom.window import WHOLE, Slice, from_ms

#: The field of a part in its shard's state.
_FIELD = re.compile(f"({WHOLE}|[0-9][0-9A-Za-z]*)(:[0-9]+)?")
_COUNT = re.compile("[0-9]{1,15}", re.ASCII)
_LOST = (
    "the server has lost the filter before {:%Y-%m-%d %H:%M} UTC (a flush, a restart without persistence, evicted keys): what was "
    "seen before is new again"
)
#: The reply of PTTL for a missing key.
MISSING = -2


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One live slice."""

    label: str
    #: The start and end (excluded) of the period, in the filter's time zone; None without a window.
    start: datetime | None
    end: datetime | None
    #: When the slice's keys expire; None if they have no TTL.
    expires: datetime | None
    #: The exact number of items added.
    items: int
    #: The number of items that its parts have room for.
    capacity: int
    #: The number of parts in the shard with the most parts. It is above 1 if the slice has grown.
    parts: int
    #: The share of bits that so many items set, 0 to 1.
    fill_ratio: float
    #: Memory in Redis, overhead included; None if the server refuses to tell.
    bytes: int | None
    #: The chance that an item that was never added is found in this slice.
    error_rate: float


@dataclass(frozen=True, slots=True)
class FilterInfo:
    """A filter and its live slices, oldest first."""

    name: str
    #: None: the filter has no window, and never forgets.
    granularity: str | None
    tz: str
    #: Distinct items expected per slice; None: each slice is made for as many as the last one held.
    capacity: int | None
    #: The error rate over the whole window, as configured.
    promised_error_rate: float
    #: The size of one slice; without a capacity, the size of the filter's first slice.
    bits: int
    hashes: int
    shards: int
    #: True: a full slice grows.
    grow: bool
    slices: tuple[SliceInfo, ...]
    #: Items that are claimed or left.
    claims: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]
    #: When the server has lost what the filter had seen (s since the epoch), if that would be in the window still.
    lost_at: float | None = None
    #: Those of the warnings that nothing mends before they have left the window: of what the server has lost, or dropped.
    damage: tuple[str, ...] = ()
    #: Since when a server of the filter has written nothing to its disk (s since the epoch); None: it does, or does not say.
    unsaved_since: float | None = None

    @property
    def items(self) -> int:
        """Items added in the whole window."""
        return sum(slice.items for slice in self.slices)

    @property
    def bytes(self) -> int | None:
        """Memory of all slices in Redis; None if the server refuses to tell."""
        return total(slice.bytes for slice in self.slices)

    def made_for(self, slice: SliceInfo) -> int:
        """Return the number of items that a slice was made for; without a capacity, that it has room for."""
        return self.capacity or slice.capacity

    @property
    def error_rate(self) -> float:
        """The chance that an item that was never added is called seen at present."""
        return sizing.window_rate([slice.error_rate for slice in self.slices])


class Overview(NamedTuple):
    """The state of a filter, except its memory."""

    #: The server's time (ms).
    now: int
    #: The stored text of each shard's layout.
    layouts: list[str]
    #: By key, for each part that exists: the number of items, and the TTL (ms; negative: no TTL).
    parts: dict[str, tuple[int, int]]
    #: The number of items that are claimed.
    claims: int
    #: What the servers say of themselves.
    told: Told
    #: Warnings about what they have lost, or dropped.
    damage: list[str]
    #: When the server has lost a shard (ms), if it would be in the window still.
    lost_at: int | None

    @property
    def warnings(self) -> list[str]:
        """Warnings about servers that may drop keys, and about what they have dropped."""
        return [*self.told.warnings, *self.damage]


def items_in(count: Any) -> int:
    """Return the number of items in a part, from its field in a shard's state. Return 0 if the field is not tbloom's."""
    known = text(count or "")
    return int(known) if _COUNT.fullmatch(known) else 0


def parts_of(config: Config, shard: int, fields: Iterable[Any]) -> list[str]:
    """Return the keys of the parts that these fields of a shard's state count. Ignore fields that are not tbloom's."""
    counted = [text(field) for field in fields]
    return [config.keys.slice(field, shard) for field in counted if _FIELD.fullmatch(field)]


def read_overview(config: Config, clock: ServerClock) -> Flow[Overview]:
    """Read the states of all shards, and the TTLs of the parts that they count."""
    keys, shards = config.keys, range(config.shards)
    names = [*map(keys.state, shards)]
    _, told, found = yield from together(
        ask_time(config, clock), ask_servers(names), _ask_each("HGETALL", names)
    )
    damage = list[str]()
    states = [{text(field): value for field, value in pairs(state).items()} for state in found]
    layouts, now = [text(state.get("layout", "")) for state in states], clock.now()
    first = config.window.live(now)[0]
    oldest = first.label
    # When the server has lost a shard, as a client that knew it has noted (``lua/bloom/open.lua``).
    times = [items_in(state.get("lost")) for state in states]
    lost_at = max((time for time in times if time and time >= first.start), default=None)
    if lost_at is not None:
        damage.append(_LOST.format(from_ms(lost_at)))
    counts: dict[str, int] = {}
    for shard, state in enumerate(states):
        for field, count in state.items():
            if field.partition(":")[0] >= oldest:
                for part in parts_of(config, shard, [field]):
                    if items := items_in(count):
                        counts[part] = items
    claims, ttls = yield from together(
        _ask_each("HLEN", map(keys.claims, shards)), _ask_each("PTTL", counts)
    )
    heads = {}
    for part, ttl in zip(counts, ttls, strict=True):
        if ttl != MISSING:
            heads[part] = counts[part], ttl
        else:
            damage.append(f"the server has dropped {part} early: what it held is forgotten")
    return Overview(now, layouts, heads, sum(claims), told, damage, lost_at)


def read_info(config: Config, clock: ServerClock) -> Flow[FilterInfo]:
    """Return the result of ``info()``."""
    _, seen = yield from together(check_stored(config), read_overview(config, clock))
    warnings = seen.warnings
    sizes = yield from memory(seen.parts, warnings)
    bytes_of = dict(zip(seen.parts, sizes, strict=True))
    layouts = [Layout(config, known, shard) for shard, known in enumerate(seen.layouts)]

    def slice_info(slice: Slice) -> SliceInfo:
        parts, left = list[PartInfo](), MISSING
        for shard, layout in enumerate(layouts):
            for number, part in enumerate(layout.parts(slice.label)):
                key = config.keys.slice(slice.label, shard, number)
                items, ttl = seen.parts.get(key, (0, MISSING))
                parts.append(PartInfo(shard, part, items, bytes_of.get(key, 0)))
                left = max(left, ttl)
        expires = from_ms(seen.now + left, config.window.zone) if left >= 0 else None
        return summed(config, slice, parts, expires)

    slices = [slice_info(each) for each in config.window.live(seen.now)]
    return replace(
        filter_info(config, slices),
        claims=seen.claims,
        warnings=(*warnings,),
        lost_at=None if seen.lost_at is None else seen.lost_at / 1000,
        damage=(*seen.damage,),
        unsaved_since=seen.told.unsaved_since,
    )


def filter_info(config: Config, slices: list[SliceInfo]) -> FilterInfo:
    """Return the result of ``info()`` for these parameters and slices, without claims and warnings."""
    return FilterInfo(
        name=config.name,
        granularity=config.window.granularity,
        tz=config.window.tz,
        capacity=config.capacity,
        promised_error_rate=config.error_rate,
        bits=config.bits,
        hashes=config.hashes,
        shards=config.shards,
        grow=config.grow,
        slices=tuple(slices),
        claims=0,
        warnings=(),
    )


class PartInfo(NamedTuple):
    """The contents of one part of a slice."""

    shard: int
    part: Part
    items: int
    #: Memory in Redis; 0 if the part has no key; None if the server refuses to tell.
    bytes: int | None

    @property
    def set_bits(self) -> float:
        """The expected number of bits that are set."""
        bits, hashes = self.part.bits, self.part.hashes
        return bits * -expm1(-hashes * self.items / bits)

    @property
    def error_rate(self) -> float:
        """The expected error rate with this number of items."""
        return rate_at(self.items, self.part.bits, self.part.hashes)


def summed(
    config: Config, slice: Slice, parts: list[PartInfo], expires: datetime | None
) -> SliceInfo:
    """Return the contents of a slice with these parts."""
    begun = sum(held.part.bits for held in parts if held.bytes != 0)
    by_shard: list[list[PartInfo]] = [[] for _ in range(config.shards)]
    for held in parts:
        by_shard[held.shard].append(held)
    period = config.window.period(slice)
    return SliceInfo(
        label=period.label,
        start=period.start,
        end=period.end,
        expires=expires,
        items=sum(held.items for held in parts),
        capacity=sum(held.part.capacity for held in parts),
        parts=max(map(len, by_shard)),
        fill_ratio=sum(held.set_bits for held in parts) / max(1, begun),
        bytes=total(held.bytes for held in parts),
        error_rate=fsum(window_rate([held.error_rate for held in of]) for of in by_shard)
        / config.shards,
    )


def _ask_each(command: str, keys: Iterable[str]) -> Flow[list[Any]]:
    return request_all([Call((command, key)) for key in keys])
