"""The calls of the scripts in ``lua/exact``, one function for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tbloom.engine.buckets import keys_of_halves, packed
from tbloom.engine.directory import LAST_BUCKET, Directory
from tbloom.engine.flow import Call
from tbloom.engine.pending import Batch
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.exact.config import ExactConfig

_CHANGE = Script("exact/change")
_CLEAR = Script("exact/clear")
_COUNT = Script("exact/count")

#: A bucket with more entries than this is split. Redis keeps up to 128 entries in its compact form (a listpack). With a lower
#: limit, a search is faster, but the keys take more memory.
_MAX_ENTRIES = 80


@dataclass(slots=True, eq=False)
class ExactBatch(Batch):
    """The items of one call to an exact filter."""

    #: How long new items are remembered (ms); 0 if the call adds none.
    ttl: int = 0
    #: True if the client has compared the parameters at the root key just before the call.
    compared: bool = False
    #: The directory of its last call; None if the call clears the filter.
    directory: Directory | None = None
    #: When each remembered item expires (ms), for the verb ``expires``.
    times: Sequence[int] = ()


def change(
    config: ExactConfig,
    verb: str,
    batch: ExactBatch,
    directory: Directory,
    swept: Sequence[int] = (),
) -> Call:
    """Return a call that adds, discards or looks up the items. ``verb`` is the first argument of the script.

    An add also removes expired entries from the buckets ``swept``.
    """
    keys, shard = config.keys, batch.shard
    prefix = keys.buckets(directory.generation, shard)
    halves = [*map(directory.half_of, batch.digests)]
    buckets = *keys_of_halves(prefix, halves), *[f"{prefix}{bucket}" for bucket in swept]
    how = (batch.ttl, _MAX_ENTRIES, LAST_BUCKET, *swept) if verb == "add" else ()
    is_compared = int(batch.compared or config.shards == 1)
    checked = verb, batch.lane.token, config.stored, is_compared, directory.generation
    return _CHANGE.call(
        (keys.config(shard), keys.layout(shard), keys.lane(batch.lane.name, shard), *buckets),
        (*checked, LANE_TTL_MS, packed(halves, batch.digests), *how),
    )


def clear(config: ExactConfig, batch: ExactBatch) -> Call:
    """Return a call that deletes a shard's layout. The batch must have a lane and a generation, and no items."""
    keys, shard = config.keys, batch.shard
    return _CLEAR.call(
        (keys.lane(batch.lane.name, shard), keys.config(shard), keys.layout(shard)),
        (batch.lane.token, config.stored, LANE_TTL_MS, batch.generation),
    )


def count(buckets: Sequence[str], generation: str) -> Call:
    """Return a call that counts the items and the expired entries of these buckets."""
    return _COUNT.call(buckets, (generation,))
