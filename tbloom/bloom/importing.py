"""The flow behind ``tbloom import``: items that were seen elsewhere go into a slice of choice."""

from __future__ import annotations

from typing import Any

from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.info import ask_time
from tbloom.bloom.script_calls import Positions, ShardCalls, SliceCalls, leaves
from tbloom.bloom.sizing import HEADER_BITS
from tbloom.engine.batches import Batch
from tbloom.engine.flow import Flow, ScriptCall
from tbloom.engine.scripts import Script
from tbloom.errors import ConfigError

_IMPORT = Script("bloom/import")

#: Of the script's keys, those before the parts.
_KEYS_BEFORE = 3


def import_many(exchange: FilterExchange, digests: list[int], label: str | None) -> Flow[int]:
    """Remembers the items in the slice of that label, or with None in the current one.

    Those that it or a newer slice holds already are not written again: they stay for as long at
    least. Returns how many were written. Made again, it writes nothing twice; so what a call has
    written whose reply got lost is not in that number.
    """
    if label is not None and label not in exchange.current_plan().labels:
        # Perhaps our clock is wrong.
        yield from ask_time(exchange.config, exchange.clock)
        _check_live(label, exchange.current_plan())
    batches = exchange.batches(digests, label)
    yield from exchange.ask(batches, _Import().call, store=True)
    return sum((batch.answers or "").count("1") for batch in batches)


def _check_live(label: str, plan: SliceCalls) -> None:
    if label not in plan.labels:
        raise ConfigError("slice", label, f"one that is live: {', '.join(plan.labels)}")


class _Import:
    """The script calls of one import; what is the same for a shard is worked out once."""

    def __init__(self) -> None:
        self._terms: dict[tuple[ShardCalls, int], tuple[tuple[str, ...], tuple[Any, ...]]] = {}

    def call(self, plan: SliceCalls, batch: Batch) -> ScriptCall:
        """``lua/import.lua``."""
        shard, agreed = plan.shard(batch.shard), plan.agreed(batch)
        terms = self._terms.get((shard, agreed))
        if terms is None:
            terms = self._terms[shard, agreed] = self._work_out(plan, batch, shard)
        parts = len(terms[0]) - _KEYS_BEFORE
        return ScriptCall(_IMPORT, *terms, Positions(shard, batch.digests, parts))

    def _work_out(
        self, plan: SliceCalls, batch: Batch, shard: ShardCalls
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        config, label = plan.config, batch.label or plan.labels[0]
        _check_live(label, plan)
        age = plan.labels.index(label)
        newer = shard.slice_ends[age - 1] if age else 0
        parts = shard.slice_ends[age]
        newest = shard.layout.parts(label)[-1]
        [slice] = [slice for slice in config.window.live(plan.begins) if slice.label == label]
        return (
            (
                config.keys.config(batch.shard),
                config.keys.layout(batch.shard),
                config.keys.register(batch.shard),
                *shard.keys[:parts],
            ),
            (
                config.stored,
                plan.begins,
                plan.ends,
                leaves(config, config.window.expires(slice), batch.shard),
                plan.agreed(batch),
                shard.layout.text,
                shard.layout.grown(label, plan.labels) if config.grow else "",
                newest.capacity,
                HEADER_BITS + newest.bits - 1,
                shard.sizes(parts),
                newer + 1,
            ),
        )
