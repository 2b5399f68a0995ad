"""The script call of ``commit``, which ``import_many`` uses too."""

from __future__ import annotations

from tbloom.bloom.hasher import packed
from tbloom.bloom.script_calls import SliceCalls, leaves
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import CallTemplate

_COMMIT = Script("bloom/claims/commit")


def commit_call(calls: SliceCalls, batch: Batch, session: str = "") -> ScriptCall:
    """``lua/bloom/claims/commit.lua``: writes into the batch's slice, or the current one. Without a session it ends no claims."""
    shard, label = calls.shard(batch.shard), batch.label or calls.labels[0]
    made_from = _COMMIT, label, batch.agreed, session
    template = shard.templates.get(made_from)
    if template is None:
        template = shard.templates[made_from] = _new_template(calls, batch, label, session)
    return template.fill(packed(batch.digests, shard.digests[calls.labels.index(label)]))


def _new_template(calls: SliceCalls, batch: Batch, label: str, session: str) -> CallTemplate:
    calls.check_live(label)
    config, shard, age = calls.config, calls.shard(batch.shard), calls.labels.index(label)
    slice, parts = calls.slices[age], shard.slice_ends[age]
    return CallTemplate(
        _COMMIT,
        (
            config.keys.config(batch.shard),
            config.keys.layout(batch.shard),
            config.keys.register(batch.shard),
            config.keys.claims(batch.shard),
            *shard.keys[:parts],
        ),
        (
            config.stored,
            calls.begins,
            calls.ends,
            leaves(config, config.window.expires(slice), batch.shard),
            calls.agreed(batch),
            shard.layout.text,
            shard.layout.grown(label, calls.labels) if config.grow else "",
            shard.layout.parts(label)[-1].capacity,
            shard.sizes(parts),
            1 + (shard.slice_ends[age - 1] if age else 0),
            session,
        ),
    )
