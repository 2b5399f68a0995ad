"""What ``info()`` and ``keys()`` tell of a filter without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tbloom.info import FilterInfo, SliceInfo
from tbloom.local.bound import key_of, part_of
from tbloom.local.engine import Engine
from tbloom.local.parts import Part
from tbloom.plan import Plan
from tbloom.sizing import key_bytes
from tbloom.survey import HeldPart, filter_info, summed
from tbloom.window import Slice, from_ms, to_ms


def keys(engine: Engine, at: datetime | None) -> list[str]:
    """The keys that Redis would have, oldest first. Raises ConfigMismatch."""
    store, config = engine.store, engine.config
    with store.guard:
        store.lock(exclusive=False)
        try:
            now = engine.clock()
            engine.prepare(now, [], store=False)
        finally:
            store.unlock()
    slices = config.window.live(to_ms(at) if at else now)
    shards = range(config.shards)
    return [config.keys.slice(slice.label, shard) for slice in slices for shard in shards]


def overview(engine: Engine, earlier: FilterInfo | None) -> FilterInfo:
    """What the filter holds; with an ``earlier`` answer, bits are counted only where it has changed."""
    store, config = engine.store, engine.config
    known = {slice.label: slice for slice in earlier.slices} if earlier else {}
    with store.guard:
        store.lock(exclusive=False)
        try:
            now = engine.clock()
            plan = engine.prepare(now, range(config.shards), store=False)
            slices = [
                _slice_info(engine, plan, slice, known.get(slice.label))
                for slice in config.window.live(now)
            ]
        finally:
            store.unlock()
    return filter_info(config, slices)


def _slice_info(engine: Engine, plan: Plan, slice: Slice, before: SliceInfo | None) -> SliceInfo:
    store, config = engine.store, engine.config
    sizes, parts = [], []
    holds = store.contents.stored == config.stored
    for shard in range(config.shards):
        for number, size in enumerate(plan.layout(shard).parts(slice.label)):
            sizes.append((shard, size))
            key = key_of(slice.label, shard, number)
            parts.append(part_of(store, key, size) if holds else None)
    begun = [part for part in parts if part is not None]
    expires = max((part.expires for part in begun), default=None)
    leaves = None if expires is None else from_ms(expires, config.window.zone)
    if before and _is_the_same(before, parts, config.shards):
        return replace(before, expires=leaves)
    held = [
        HeldPart(
            shard,
            size,
            part.items if part else 0,
            key_bytes(size.bits) if part else 0,
            part.set_bits() if part else 0,
        )
        for (shard, size), part in zip(sizes, parts, strict=True)
    ]
    return summed(config, slice, held, leaves)


def _is_the_same(before: SliceInfo, parts: list[Part | None], shards: int) -> bool:
    begun = [part for part in parts if part is not None]
    items = sum(part.items for part in begun)
    size = sum(part.size for part in begun)
    return (items, size, len(parts)) == (before.items, before.bytes, before.parts * shards)
