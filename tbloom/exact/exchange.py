"""One client's conversation with the server about one exact filter, until all items have answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tbloom.engine.batches import Batch, PendingAnswers
from tbloom.engine.buckets import Bucketed
from tbloom.engine.flow import Flow, ScriptCall, Status, chunks, text
from tbloom.engine.keys import by_shard
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.engine.tree import BITS, LAST_BUCKET, Tree, new_generation, read_tree
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.exact.config import ExactConfig

_OPEN = Script("exact/open")
_ADD = Script("exact/add")
_CONTAINS = Script("exact/contains")
_CLEAR = Script("exact/clear")

#: A bucket with more entries is split. Redis keeps up to 128 in its compact form (a listpack); the fewer they are,
#: the faster they are searched, and the more memory the keys take.
_MOST_ENTRIES = 80
#: A new item takes the server some 9 us.
_ITEMS_PER_CALL = 150
#: How many buckets a call sweeps beside its own, at least and at most; and at most one more for each item.
#: A bucket takes the server from 1 us (nothing is dead) to 13 us (nearly all are).
_LEAST_SWEEP, _MOST_SWEEP = 1, 64
#: With a larger part dead of what was swept, the next call sweeps twice as many buckets.
_MANY_DEAD = 0.05
#: And where fewer entries are left in what was swept: who looks at ten for each that he adds has looked at all by
#: the time that a tenth of them can have died.
_LEAST_LEFT = 12
#: Who only looks compares the parameters again after so many seconds.
_LOOK_SECONDS = 60.0

_CallFor = Callable[[Batch], ScriptCall]


class _Shard:
    """What is known of a shard: its buckets, and how far they are swept."""

    __slots__ = ("cursor", "sweep", "tree")

    def __init__(self) -> None:
        self.tree = Tree("")
        self.cursor = random.getrandbits(BITS)
        self.sweep = _LEAST_SWEEP

    def next_sweep(self, tree: Tree, items: int) -> list[int]:
        """The buckets that the next call, with so many items, sweeps."""
        buckets: dict[int, None] = {}
        for _ in range(min(self.sweep, _MOST_SWEEP + items)):
            bucket, self.cursor = tree.bucket_after(self.cursor)
            if bucket in buckets:  # that is all of them
                break
            buckets[bucket] = None
        return [*buckets]

    def note_dead(self, dead: int, left: int) -> None:
        """Of the entries of the buckets that a call has swept, so many were dead, and so many are left."""
        if dead > _MANY_DEAD * left or left < _LEAST_LEFT:
            self.sweep = min(2 * self.sweep, _MOST_SWEEP + _ITEMS_PER_CALL)
        elif left >= 4 * _LEAST_LEFT and self.sweep > _LEAST_SWEEP:
            self.sweep //= 2


class ExactExchange(Bucketed):
    """What a client has learnt about an exact filter, and its tokens."""

    def __init__(self, config: ExactConfig) -> None:
        super().__init__(config.name)
        self.config = config
        self._shards: dict[int, _Shard] = {}
        #: Until when (``time.monotonic``) the parameters are known to be stored for items of which life (ms).
        self._agreed: tuple[float, int] = (0.0, 0)
        #: The shards whose layout must be read before they are asked again.
        self._outdated: set[int] = set()

    def batches(self, digests: Iterable[int], ttl: int = 0) -> list[Batch]:
        """The distinct digests, by shard, in batches of what one call may carry."""
        return [
            Batch(list(some), shard, ttl=ttl)
            for shard, keys in by_shard(digests, self.config.shards).items()
            for some in chunks(keys, _ITEMS_PER_CALL)
        ]

    def _prepare(self, batches: list[Batch]) -> Flow[None]:
        """A single shard's script compares the parameters itself."""
        if self.config.shards > 1:
            yield from self._agree(batches)

    def _refresh(self, batches: list[Batch]) -> Flow[None]:
        """Reads the layouts that have changed."""
        for shard in self._outdated.intersection(batch.shard for batch in batches):
            self._outdated.discard(shard)
            self._shard(shard).tree = yield from read_tree(
                self.config.name, self.config.keys.layout(shard)
            )

    def _agree(self, batches: list[Batch]) -> Flow[None]:
        """Compares the parameters where they are found by name, if that is due; if items are to be added,
        has them stored for longer than the items live that are added until this is due again."""
        ttl = max(batch.ttl for batch in batches)
        until, longest = self._agreed
        is_asked_for = any(batch.agreed for batch in batches)
        if time.monotonic() < until and ttl <= longest and not is_asked_for:
            return
        config = self.config
        call = ScriptCall(_OPEN, (config.keys.root,), (config.stored, ttl))
        yield from self._deliver([call], [Batch([])], self._accept)
        self._agreed = time.monotonic() + (ttl / 2000 or _LOOK_SECONDS), ttl
        for batch in batches:
            batch.agreed = True

    def _moved(self, batch: Batch) -> None:
        """Its buckets were others than this client knew."""
        self._outdated.add(batch.shard)

    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: to be asked again."""
        status, payload, *more = reply
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload, all_of_them=True)
                self._learn(batch, *more)
            return True
        if status == Status.LAYOUT:
            self._outdated.add(batch.shard)
            return False
        if status == Status.MISMATCH:
            stored = text(payload)
            raise ConfigMismatch(self.config.name, self.config.differences(stored), stored)
        if status == Status.UNKNOWN:
            self._agreed, batch.agreed = (0.0, 0), True
            shard = self._shard(batch.shard)
            if shard.tree is batch.known:  # what was proposed is not known to the server
                shard.tree = Tree("")
            return False
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def _learn(self, batch: Batch, splits: list[int], *swept: int) -> None:
        """Takes what a call has found beside the answers."""
        batch.known.note_splits(splits)
        if swept:
            self._shard(batch.shard).note_dead(*swept)

    def forget(self) -> None:
        """The filter is cleared: parameters are to be agreed on anew, and no first answer holds any more."""
        self._agreed, self.pending_answers = (0.0, 0), PendingAnswers()

    def _shard(self, shard: int) -> _Shard:
        known = self._shards.get(shard)
        return self._shards.setdefault(shard, _Shard()) if known is None else known

    def add_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_add.lua``; the batch has a lane."""
        keys, shard = self.config.keys, self._shard(batch.shard)
        tree, is_new = shard.tree, False
        if not tree.generation:
            # Proposed by this call only: if there is a clear() meanwhile, what was before must not come back.
            tree = shard.tree = Tree(new_generation())
            is_new = True
        batch.known, halves = tree, [*map(tree.half_of, batch.digests)]
        swept = shard.next_sweep(tree, len(halves))
        return ScriptCall(
            _ADD,
            (
                self._lane(batch),
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self._keys(batch.shard, tree, halves),
                *(keys.bucket(tree.generation, bucket, batch.shard) for bucket in swept),
            ),
            (
                batch.number,
                self.config.stored,
                self._is_agreed(batch),
                tree.generation,
                batch.ttl,
                LANE_TTL_MS,
                _MOST_ENTRIES,
                LAST_BUCKET,
                int(is_new),
                len(halves),
                *_items(halves, batch.digests),
                *swept,
            ),
        )

    def contains_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_contains.lua``."""
        keys, tree = self.config.keys, self._shard(batch.shard).tree
        batch.known, halves = tree, [*map(tree.half_of, batch.digests)]
        return ScriptCall(
            _CONTAINS,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self._keys(batch.shard, tree, halves),
            ),
            (
                self.config.stored,
                self._is_agreed(batch),
                tree.generation,
                *_items(halves, batch.digests),
            ),
        )

    def clear_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_clear.lua``; the batch has a lane, and no items."""
        keys = self.config.keys
        return ScriptCall(
            _CLEAR,
            (self._lane(batch), keys.config(batch.shard), keys.layout(batch.shard)),
            (batch.number, self.config.stored, LANE_TTL_MS),
        )

    def _keys(self, shard: int, tree: Tree, halves: list[int]) -> Iterator[str]:
        """For each item, its bucket and that one's halves."""
        key, generation = self.config.keys.bucket, tree.generation
        for half in halves:
            yield key(generation, half >> 1, shard)
            yield key(generation, half & ~1, shard)
            yield key(generation, half | 1, shard)

    def _lane(self, batch: Batch) -> str:
        lane = batch.lane
        assert lane is not None  # noqa: S101 - it was given a token
        return self.config.keys.lane(lane.client, lane.lane, batch.shard)

    def _is_agreed(self, batch: Batch) -> int:
        return int(batch.agreed or self.config.shards == 1)


def _items(halves: list[int], digests: list[int]) -> Iterator[Any]:
    for half, digest in zip(halves, digests, strict=True):
        yield half
        yield digest.to_bytes(16, "big")
