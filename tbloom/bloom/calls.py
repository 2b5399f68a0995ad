"""The calls of the scripts in ``lua/bloom``, one function for each. ``claims/calls`` has those of ``lua/claims``."""

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
_COMMIT = Script("bloom/commit")
_CLEAR = Script("bloom/clear")
_OPEN = Script("bloom/open")
_SET_LAYOUT = Script("bloom/set_layout")
_RESTORE_SHARD = Script("bloom/restore_shard")


def add(batch: FilterBatch) -> Call:
    """Return a call that checks the items and adds the new ones. The batch must have a lane."""
    header = batch.header
    return _ADD.call(header.keys, (batch.lane.token, header.packed, header.pack(batch.digests)))


def commit(batch: FilterBatch, session: str = "", queue: str = "") -> Call:
    """Return a call that adds the items, and ends the session's claims on them. The batch must have a lane.

    An import has no session, and ends no claims. The reply says how many sessions wait for items of the ``queue``.
    """
    header, shard = batch.header, batch.shard
    keys = header.view.config.keys
    claims = keys.claims(shard), keys.sessions(shard), keys.left(shard)
    config, state, *parts = header.keys
    items = header.pack(batch.digests, with_digests=True)
    words = batch.lane.token, header.packed, session, items, queue
    return _COMMIT.call((config, state, *claims, *parts), words)


def contains(batch: FilterBatch) -> Call:
    """Return a call that checks the items."""
    header = batch.header
    return _CONTAINS.call(header.keys, (header.packed, header.pack(batch.digests)))


def newest_slices(batch: FilterBatch) -> Call:
    """Return a call whose reply has the number of the newest slice that holds each item."""
    header = batch.header
    arguments = header.packed, header.slice_numbers, header.pack(batch.digests)
    return _CONTAINS.call(header.keys, arguments)


def clear(batch: FilterBatch, view: View, counted: Sequence[str]) -> Call:
    """Return a call that deletes a shard.

    The batch must have a lane, and no items. ``counted`` are the keys of the parts that the state counts.
    """
    keys = view.config.keys
    known = view.header(batch.shard, len(view.labels))
    config, state, *parts = known.keys
    named = (
        config,
        state,
        keys.claims(batch.shard),
        keys.sessions(batch.shard),
        keys.left(batch.shard),
        keys.crawlers(batch.shard),
    )
    header = view.header_without_items(batch.shard, known.layout.version)
    return _CLEAR.call(
        (*named, *dict.fromkeys([*parts, *counted])),
        (batch.lane.token, header, view.config.stored, LANE_TTL_MS),
    )


def open_(view: View, shard: int | None, *, store: bool, known: str = "") -> Call:
    """Return a call that compares the parameters of a shard. If ``shard`` is None, it compares those at the root key.

    With ``store``, it also stores the parameters if none are stored. ``known``: the generation that the client knew.
    """
    keys, config = view.config.keys, view.config
    arguments = config.stored, view.header_without_items(shard), int(store)
    if shard is None:
        return _OPEN.call((keys.root,), arguments)
    entries = view.layout(shard).first_entries(view.labels[0]) if store else ""
    return _OPEN.call((keys.config(shard), keys.state(shard)), (*arguments, entries, known))


def set_layout(view: View, shard: int, header: bytes, entries: str) -> Call:
    """Return a call that replaces the entries of a shard's layout.

    It changes nothing if the layout has another version than the header, or if the chosen part is not full.
    """
    keys = view.config.keys
    return _SET_LAYOUT.call((keys.config(shard), keys.state(shard)), (header, entries))


def restore_shard(
    config: Config, shard: int, entries: str, incoming: Sequence[str], parts: Sequence[RestoredPart]
) -> Call:
    """Return a call that renames the parts of a restored shard. ``incoming`` are their temporary keys."""
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
