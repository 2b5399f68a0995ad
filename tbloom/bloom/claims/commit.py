"""The script call of ``commit``, which ``import_many`` uses too."""

from __future__ import annotations

from tbloom.bloom.script_calls import Parts, SliceCalls, leaves
from tbloom.bloom.sizing import key_bytes
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import CallTemplate

_COMMIT = Script("bloom/claims/commit")


def commit_call(calls: SliceCalls, batch: Batch, session: str = "") -> ScriptCall:
    """``lua/bloom/claims/commit.lua``: writes into the batch's slice, or the current one. Without a session it ends no claims."""
    shard, label = calls.shard(batch.shard), batch.label or calls.labels[0]
    made_from = _COMMIT, label, batch.agreed, session
    made = shard.templates.get(made_from)
    if made is None:
        made = shard.templates[made_from] = _new_template(calls, batch, label, session)
    template, parts = made
    return template.fill(parts.packed(batch.digests))


def _new_template(
    calls: SliceCalls, batch: Batch, label: str, session: str
) -> tuple[CallTemplate, Parts]:
    calls.check_live(label)
    config, shard, age = calls.config, calls.shard(batch.shard), calls.labels.index(label)
    parts, newest = shard.parts(age + 1, age), shard.layout.parts(label)[-1]
    template = CallTemplate(
        _COMMIT,
        (
            config.keys.config(batch.shard),
            config.keys.layout(batch.shard),
            config.keys.register(batch.shard),
            config.keys.claims(batch.shard),
            *parts.keys,
        ),
        (
            config.stored,
            calls.begins,
            calls.ends,
            leaves(config, config.window.expires(calls.slices[age]), batch.shard),
            calls.agreed(batch),
            shard.layout.version,
            calls.growth(batch.shard, label),
            newest.capacity,
            key_bytes(newest.bits),
            parts.sizes,
            session,
        ),
    )
    return template, parts
