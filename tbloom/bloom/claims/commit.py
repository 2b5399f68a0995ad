"""The script call of ``commit``, which ``import_many`` uses too."""

from __future__ import annotations

from itertools import chain

from tbloom.bloom.script_calls import Positions, SliceCalls, Terms, leaves
from tbloom.bloom.sizing import HEADER_BITS
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.scripts import Script

_COMMIT = Script("bloom/claims/commit")


def fingerprint_of(digest: int) -> bytes:
    """An item's fingerprint, as the claims have it."""
    return digest.to_bytes(16, "big")


def commit_call(calls: SliceCalls, batch: Batch, session: str = "") -> ScriptCall:
    """``lua/bloom/claims/commit.lua``: writes into the batch's slice, or the current one. Without a session it ends no claims."""
    shard, label = calls.shard(batch.shard), batch.label or calls.labels[0]
    terms = shard.commit_terms.get((label, batch.agreed))
    if terms is None:
        terms = shard.commit_terms[label, batch.agreed] = _terms(calls, batch, label)
    keys, args = terms
    parts = shard.slice_ends[calls.labels.index(label)]
    if not session:
        return ScriptCall(_COMMIT, keys, (*args, ""), Positions(shard, batch.digests, parts))
    items = ((fingerprint_of(key), *shard.positions(key, parts)) for key in batch.digests)
    return ScriptCall(_COMMIT, keys, (*args, session, *chain.from_iterable(items)))


def _terms(calls: SliceCalls, batch: Batch, label: str) -> Terms:
    calls.check_live(label)
    config, shard, age = calls.config, calls.shard(batch.shard), calls.labels.index(label)
    newest = shard.layout.parts(label)[-1]
    slice = config.window.live(calls.begins)[-1 - age]
    return (
        (
            config.keys.config(batch.shard),
            config.keys.layout(batch.shard),
            config.keys.register(batch.shard),
            config.keys.claims(batch.shard),
            *shard.keys[: shard.slice_ends[age]],
        ),
        (
            config.stored,
            calls.begins,
            calls.ends,
            leaves(config, config.window.expires(slice), batch.shard),
            calls.agreed(batch),
            shard.layout.text,
            shard.layout.grown(label, calls.labels) if config.grow else "",
            newest.capacity,
            HEADER_BITS + newest.bits - 1,
            shard.sizes(shard.slice_ends[age]),
            1 + (shard.slice_ends[age - 1] if age else 0),
        ),
    )
