"""``info()`` and ``keys()`` of a filter without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tbloom.bloom.info import FilterInfo, HeldPart, SliceInfo, filter_info, is_unchanged, summed
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import key_bytes
from tbloom.items import check_at
from tbloom.local.protocol import Protocol
from tbloom.local.shard import parts_of
from tbloom.window import ALWAYS, Slice, from_ms, to_ms


def keys(protocol: Protocol, at: datetime | None) -> list[str]:
    """The keys that the slices would have in Redis, oldest first. Raises ConfigMismatch."""
    at = check_at(at)
    with protocol.store.locked():
        now, config = protocol.agree(), protocol.config
    slices = config.window.live(to_ms(at) if at else now)
    shards = range(config.shards)
    return [config.keys.slice(slice.label, shard) for slice in slices for shard in shards]


def overview(protocol: Protocol, earlier: FilterInfo | None) -> FilterInfo:
    """What the filter holds; with an ``earlier`` answer, bits are counted only where it has changed."""
    known = {slice.label: slice for slice in earlier.slices} if earlier else {}
    with protocol.store.locked():
        now, config = protocol.agree(), protocol.config
        current = protocol.current(now)
        slices = [
            _slice_info(protocol, current, slice, known.get(slice.label))
            for slice in config.window.live(now)
        ]
    return filter_info(config, slices)


def _slice_info(
    protocol: Protocol, current: SliceCalls, slice: Slice, before: SliceInfo | None
) -> SliceInfo:
    config, shards = protocol.config, range(protocol.config.shards)
    parts = [
        (shard, size, part)
        for shard in shards
        for size, part in parts_of(protocol.store, current, slice.label, shard)
    ]
    begun = [part for *_, part in parts if part is not None]
    expires = max((part.expires for part in begun), default=ALWAYS.end)
    leaves = from_ms(expires, config.window.zone) if expires < ALWAYS.end else None
    items, size = sum(part.items for part in begun), sum(len(part.buffer) for part in begun)
    if before and is_unchanged(config, before, items, size, len(parts)):
        return replace(before, expires=leaves)
    held = [
        HeldPart(shard, size, part.items, key_bytes(size.bits), part.bits().bit_count())
        if part
        else HeldPart(shard, size, 0, 0, 0)
        for shard, size, part in parts
    ]
    return summed(config, slice, held, leaves)
