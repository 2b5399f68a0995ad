"""The calls of the scripts in ``lua/bloom``, a function for each file. Those of ``lua/bloom/claims`` are in ``claims/calls``."""

from __future__ import annotations

from collections.abc import Sequence

from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.config import Config
from tbloom.bloom.view import View
from tbloom.engine.flow import Call
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS

#: A part that is restored: the label of its slice, its number in the slice, its items, and when it expires (ms).
RestoredPart = tuple[str, int, int, int]

_ADD = Script("bloom/add")
_CONTAINS = Script("bloom/contains")
_CLEAR = Script("bloom/clear")
_OPEN = Script("bloom/open")
_SET_LAYOUT = Script("bloom/set_layout")
_RECONFIGURE = Script("bloom/reconfigure")
_RESTORE_SHARD = Script("bloom/restore_shard")


def add(batch: FilterBatch) -> Call:
    """Check the items, and add those that are new; the batch has a lane."""
    header = batch.header
    return _ADD.call(header.keys, (batch.lane.token, header.packed, header.pack(batch.digests)))


def contains(batch: FilterBatch) -> Call:
    """Check the items."""
    header = batch.header
    return _CONTAINS.call(header.keys, (header.packed, header.pack(batch.digests)))


def newest_slices(batch: FilterBatch) -> Call:
    """Ask ``contains.lua`` for the number of the newest slice that holds each item."""
    header = batch.header
    arguments = header.packed, header.slice_numbers, header.pack(batch.digests)
    return _CONTAINS.call(header.keys, arguments)


def clear(batch: FilterBatch, view: View, counted: Sequence[str]) -> Call:
    """Delete a shard. The batch has a lane and no items; ``counted`` are the keys of the parts that the state counts."""
    keys = view.config.keys
    config, state, *parts = view.header(batch.shard, len(view.labels)).keys
    named = config, state, keys.claims(batch.shard), keys.sessions(batch.shard)
    header = view.header_without_items(batch.shard)
    return _CLEAR.call(
        (*named, *dict.fromkeys([*parts, *counted])),
        (batch.lane.token, header, view.config.stored, LANE_TTL_MS),
    )


def open_(view: View, shard: int | None, *, store: bool, in_hand: int = 0) -> Call:
    """Compare the parameters of a shard, or with None those at the root of several shards.

    With ``store``, store them if none are stored; the shard then begins with room for the items in hand.
    """
    keys, config = view.config.keys, view.config
    arguments = config.stored, view.header_without_items(shard), int(store)
    if shard is None:
        return _OPEN.call((keys.root,), arguments)
    entries = view.layout(shard).first_entries(view.labels[0], in_hand) if store else ""
    return _OPEN.call((keys.config(shard), keys.state(shard)), (*arguments, entries))


def set_layout(view: View, shard: int, header: bytes, entries: str) -> Call:
    """Replace the entries of a shard's layout, if it has the header's version, and the chosen part is full."""
    keys = view.config.keys
    return _SET_LAYOUT.call((keys.config(shard), keys.state(shard)), (header, entries))


def reconfigure(
    parameters: tuple[str, str],
    header: bytes,
    entries: str,
    keys: Sequence[str],
    expiries: Sequence[int],
) -> Call:
    """Replace the stored parameters, the first of the two, by the second, and the entries of the layout.

    ``keys`` are those of the parameters, and of a shard's state and its parts; ``expiries`` has the time (ms) at which each
    part's slice leaves the window.
    """
    return _RECONFIGURE.call(keys, (*parameters, header, entries, *expiries))


def restore_shard(
    config: Config, shard: int, entries: str, incoming: Sequence[str], parts: Sequence[RestoredPart]
) -> Call:
    """Put the parts of a shard in place of a missing one; ``incoming`` are the keys that they have now."""
    keys = config.keys
    final = [keys.slice(label, shard, number) for label, number, _, _ in parts]
    counts = list[str | int]()
    for label, number, items, expires in parts:
        counts += [keys.field(label, number), items, expires]
    dropped = max(expires for *_, expires in parts)
    return _RESTORE_SHARD.call(
        (keys.config(shard), keys.state(shard), *incoming, *final),
        (config.stored, dropped, entries, *counts),
    )
