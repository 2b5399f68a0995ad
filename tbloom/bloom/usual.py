"""The usual call of one item, prepared: with one shard, in the slice that is current.

``add`` and ``contains`` make it in one go. Whatever reply but the expected ones comes, or none, goes into the flow, with the
same token.
"""

from __future__ import annotations

from typing import NamedTuple

from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.script_calls import CONTAINS, SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.tokens import CallTemplate


class Usual(NamedTuple):
    """What the usual calls of a slice have in common."""

    #: When the slice begins and ends (ns, by this machine's monotonic clock).
    begins: int
    ends: int
    calls: SliceCalls
    adding: CallTemplate
    looking: CallTemplate


def usual_calls(exchange: FilterExchange) -> Usual | None:
    """The usual calls of the current slice; None where calls are not usual, and before a first call has met the filter."""
    clock, calls, batch = exchange.clock, exchange.calls, Batch([])
    if calls is None or exchange.config.shards > 1:
        return None
    shard, window = calls.shard(0), len(calls.labels)
    if not shard.layout.version or shard.begins_after:
        return None
    begins, ends = clock.monotonic_ns(calls.begins), clock.monotonic_ns(calls.ends)
    adding, looking = calls.adding(shard, window, batch), calls.looking(CONTAINS, window, batch)
    return Usual(begins, ends, calls, adding, looking)
