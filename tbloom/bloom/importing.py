"""The flow of ``import_many``: remembers items that were seen elsewhere in a chosen slice."""

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

#: The number of the script's keys before the parts.
_KEYS_BEFORE = 3


def import_many(exchange: FilterExchange, digests: list[int], label: str | None) -> Flow[int]:
    """Remembers the items in the slice with that label, or with None in the current one.

    Items that this slice or a newer one holds are not written: they stay at least as long. Returns
    how many were written. A repeated call writes nothing twice, so items that were written by a call
    whose reply got lost are not counted.
    """
    if label is not None and label not in exchange.current_plan().labels:
        # The client's clock may be wrong.
        yield from ask_time(exchange.config, exchange.clock)
        _check_live(label, exchange.current_plan())
    batches = exchange.batches(digests, label)
    yield from exchange.ask(batches, _Import().call, store=True)
    return sum((batch.answers or "").count("1") for batch in batches)


def _check_live(label: str, calls: SliceCalls) -> None:
    if label not in calls.labels:
        raise ConfigError("slice", label, f"one that is live: {', '.join(calls.labels)}")


class _Import:
    """The script calls of one import. Arguments that all calls to a shard share are prepared once."""

    def __init__(self) -> None:
        self._terms: dict[tuple[ShardCalls, int], tuple[tuple[str, ...], tuple[Any, ...]]] = {}

    def call(self, calls: SliceCalls, batch: Batch) -> ScriptCall:
        """``lua/bloom/import.lua``."""
        shard, agreed = calls.shard(batch.shard), calls.agreed(batch)
        terms = self._terms.get((shard, agreed))
        if terms is None:
            terms = self._terms[shard, agreed] = self._prepare(calls, batch, shard)
        parts = len(terms[0]) - _KEYS_BEFORE
        return ScriptCall(_IMPORT, *terms, Positions(shard, batch.digests, parts))

    def _prepare(
        self, calls: SliceCalls, batch: Batch, shard: ShardCalls
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        config, label = calls.config, batch.label or calls.labels[0]
        _check_live(label, calls)
        age = calls.labels.index(label)
        newer = shard.slice_ends[age - 1] if age else 0
        parts = shard.slice_ends[age]
        newest = shard.layout.parts(label)[-1]
        [slice] = [slice for slice in config.window.live(calls.begins) if slice.label == label]
        return (
            (
                config.keys.config(batch.shard),
                config.keys.layout(batch.shard),
                config.keys.register(batch.shard),
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
                newest.capacity,
                HEADER_BITS + newest.bits - 1,
                shard.sizes(parts),
                newer + 1,
            ),
        )
