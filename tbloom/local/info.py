"""What ``info()`` and ``keys()`` tell of a filter without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tbloom.bloom.info import FilterInfo, HeldPart, SliceInfo, filter_info, is_unchanged, summed
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import key_bytes
from tbloom.local.bound import key_of, part_of
from tbloom.local.engine import Engine
from tbloom.window import Slice, from_ms, to_ms


def keys(engine: Engine, at: datetime | None) -> list[str]:
    """The keys that Redis would have, oldest first. Raises ConfigMismatch."""
    with engine.store.guard, engine.unlocked, engine.shared:
        now, config = engine.agree(), engine.config
    slices = config.window.live(to_ms(at) if at else now)
    shards = range(config.shards)
    return [config.keys.slice(slice.label, shard) for slice in slices for shard in shards]


def overview(engine: Engine, earlier: FilterInfo | None) -> FilterInfo:
    """What the filter holds; with an ``earlier`` answer, bits are counted only where it has changed."""
    known = {slice.label: slice for slice in earlier.slices} if earlier else {}
    with engine.store.guard, engine.unlocked, engine.shared:
        now, config = engine.agree(), engine.config
        plan = engine.prepare(now, range(config.shards), store=False)
        slices = [
            _slice_info(engine, plan, slice, known.get(slice.label))
            for slice in config.window.live(now)
        ]
    return filter_info(config, slices)


def _slice_info(
    engine: Engine, plan: SliceCalls, slice: Slice, before: SliceInfo | None
) -> SliceInfo:
    store, config = engine.store, engine.config
    sizes, parts = [], []
    holds = store.contents.stored == config.stored
    for shard in range(config.shards):
        for number, own in enumerate(plan.layout(shard).parts(slice.label)):
            sizes.append((shard, own))
            key = key_of(slice.label, shard, number)
            parts.append(part_of(store, key, own) if holds else None)
    begun = [part for part in parts if part is not None]
    expires = max((part.expires for part in begun), default=None)
    leaves = None if expires is None else from_ms(expires, config.window.zone)
    items, size = sum(part.items for part in begun), sum(part.size for part in begun)
    if before and is_unchanged(config, before, items, size, len(parts)):
        return replace(before, expires=leaves)
    held = [
        HeldPart(
            shard,
            own,
            part.items if part else 0,
            key_bytes(own.bits) if part else 0,
            part.set_bits() if part else 0,
        )
        for (shard, own), part in zip(sizes, parts, strict=True)
    ]
    return summed(config, slice, held, leaves)
