"""One client's calls to one exact filter."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tbloom.engine.batches import Knowledge
from tbloom.engine.buckets import BucketDispatcher, keys_of_halves, packed
from tbloom.engine.directory import BITS, LAST_BUCKET, Directory
from tbloom.engine.flow import Call, Flow, Status, chunks, request, text
from tbloom.engine.keys import by_shard
from tbloom.engine.parameters import mismatch, refusal
from tbloom.engine.pending import Answers, Batch, answers_of
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.exact.config import ExactConfig

_CHANGE = Script("exact/change")
_CLEAR = Script("exact/clear")

#: A bucket with more entries than this is split. Redis keeps up to 128 entries in its compact form (a listpack). With a lower
#: limit, a search is faster, but the keys take more memory.
_MAX_ENTRIES = 80
#: The most items of one call. A new item takes the server some 9 us.
_ITEMS_PER_CALL = 150
# The four numbers of a sweep are chosen, not measured. With them, at most a tenth as many entries are expired as are live
# (``tests/exact/test_filter.py``).
#: The fewest and the most buckets that a call sweeps besides the buckets of its items. Each item adds one to the most. Sweeping a
#: bucket takes the server 1 us if no entry is dead, and 13 us if nearly all are.
_MIN_SWEEP, _MAX_SWEEP = 1, 64
#: The next call sweeps twice as many buckets if there were more dead entries than this share of the live ones.
_MANY_DEAD = 0.05
#: It also does so if the swept buckets have fewer live entries than this. A client that looks at ten entries for each new item
#: looks at all entries before a tenth of them can have died.
_FEW_LEFT = 12
#: A client that only looks up items compares the parameters again after this time (s).
_COMPARE_EVERY = 60.0


@dataclass(slots=True, eq=False)
class ExactBatch(Batch):
    """The items of one call to an exact filter."""

    #: The first argument of the script.
    verb: str = "discard"
    #: How long new items are remembered (ms); 0 if the call adds none.
    ttl: int = 0
    #: True if the client has compared the parameters at the root key just before the call.
    compared: bool = False
    #: The directory of its last call; None if the call clears the filter.
    directory: Directory | None = None
    #: When each remembered item expires (ms), for the verb ``expires``.
    times: Sequence[int] = ()


class _Sweep:
    """The position at which the next sweep of a shard begins, and the number of buckets that it sweeps."""

    __slots__ = ("_buckets", "_position")

    def __init__(self) -> None:
        self._position = random.getrandbits(BITS)
        self._buckets = _MIN_SWEEP

    def next_buckets(self, directory: Directory, items: int) -> list[int]:
        """Return the buckets to sweep in the next call, which has this many items."""
        buckets: dict[int, None] = {}
        for _ in range(min(self._buckets, _MAX_SWEEP + items)):
            bucket, self._position = directory.bucket_after(self._position)
            if bucket in buckets:  # the directory has no other buckets
                break
            buckets[bucket] = None
        return [*buckets]

    def adapt(self, dead: int, left: int) -> None:
        """Adapt the number of buckets to the dead entries that a sweep has removed, and the entries that are left."""
        if dead > _MANY_DEAD * left or left < _FEW_LEFT:
            self._buckets = min(2 * self._buckets, _MAX_SWEEP + _ITEMS_PER_CALL)
        elif left >= 4 * _FEW_LEFT and self._buckets > _MIN_SWEEP:
            self._buckets //= 2


def _shard_of(digest: int, shards: int) -> int:
    return (digest >> 96) * shards >> 32


class ExactDispatcher(BucketDispatcher[ExactBatch]):
    """One client's calls to an exact filter, and what the client knows of the filter."""

    _BATCH = ExactBatch

    def __init__(self, config: ExactConfig) -> None:
        super().__init__(config.name, config.keys, config.name, "clear()")
        self.config = config
        self._sweeps: defaultdict[int, _Sweep] = defaultdict(_Sweep)
        #: Until when the stored parameters need not be compared again (``time.monotonic``), and the longest lifetime (ms) of new
        #: items for which this holds.
        self._compared: tuple[float, int] = (0.0, 0)

    def add_items(self, digests: Iterable[int], ttl: int) -> Flow[Answers]:
        """Add the new items for ``ttl`` ms, and return the answers."""
        return self.add(self._batches(digests, "add", ttl), self.call)

    def discard(self, digests: list[int]) -> Flow[Answers]:
        """Remove the items, and return which of them were remembered."""
        return self.remove_items(self._batches(digests, "discard"), self.call)

    def contains(self, digests: Iterable[int]) -> Flow[Answers]:
        """Return which of the items are remembered."""
        return answers_of((yield from self.look_up(digests)))

    def look_up(self, digests: Iterable[int], verb: str = "contains") -> Flow[list[ExactBatch]]:
        """Return the batches with their answers; with the verb ``expires``, also the items' times."""
        batches = self._batches(digests, verb)
        yield from self.send(batches, self.call)
        return batches

    def _batches(self, digests: Iterable[int], verb: str, ttl: int = 0) -> list[ExactBatch]:
        """Return batches of the distinct digests. Each batch has one shard, and is sent in one call."""
        return [
            ExactBatch(list(some), shard, verb=verb, ttl=ttl)
            for shard, keys in by_shard(digests, self.config.shards, _shard_of).items()
            for some in chunks(keys, _ITEMS_PER_CALL)
        ]

    def forget(self) -> None:
        """Forget what the client knows of the filter, because the filter is being cleared."""
        self._directories.clear()
        self.outdated.clear()
        self._compared = (0.0, 0)

    def _next_step(self, batch: ExactBatch, required: Knowledge) -> Flow[None] | None:
        """Return a flow that reads a changed layout, or compares the parameters at the root key, or None."""
        step = super()._next_step(batch, required)
        until, longest = self._compared
        is_due = time.monotonic() >= until or batch.ttl > longest
        # A single shard's script compares the parameters itself.
        if step is None and self.config.shards > 1 and is_due:
            return self._compare(batch)
        return step

    def _compare(self, batch: ExactBatch) -> Flow[None]:
        """Compare the parameters at the filter's root key.

        Before an add, also store them there. They expire after all items that are added before the next comparison.
        """
        root, stored, ttl = self.config.keys.root, self.config.stored, batch.ttl
        first = [Call(("SET", root, stored, "PX", str(2 * ttl), "NX"))] if ttl else []
        replies = yield from request([*first, Call(("GET", root)), Call(("PTTL", root))])
        found, left = replies[-2:]
        if found is None and ttl:
            return  # another client has cleared the filter meanwhile
        if found is not None and text(found) != stored:
            raise mismatch(self.config, found)
        if 0 <= left < 1.5 * ttl:
            yield from request([Call(("PEXPIRE", root, str(2 * ttl)))])
        self._compared = time.monotonic() + (ttl / 2000 or _COMPARE_EVERY), ttl
        batch.compared = True

    def _learn(self, batch: ExactBatch, reply: Any) -> None:
        """Note a batch's answers, or correct what the client knows of the filter (see ``Dispatcher._learn``)."""
        status, payload, *more = reply
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload, complete=True)
                self._learn_rest(batch, *more)
            else:
                batch.answers = ""
        elif status == Status.LAYOUT:
            if batch.directory is None:  # the call clears the filter
                batch.generation = text(payload)
            elif payload:
                self.outdated.add(batch.shard)
            else:
                self._directories[batch.shard] = Directory("")
        elif status == Status.UNKNOWN:
            self._compared = (0.0, 0)
        else:
            raise refusal(self.config, status, payload)

    def _learn_rest(self, batch: ExactBatch, splits: list[int], *more: Any) -> None:
        """Note the rest of a reply: splits, and the times of a look-up, or the result of an add's sweep."""
        if batch.directory is not None:
            batch.directory.note_splits(splits)
        match more:
            case [times]:
                batch.times = times
            case [dead, left]:
                self._sweeps[batch.shard].adapt(dead, left)

    def call(self, batch: ExactBatch) -> Call:
        """Return a call of ``lua/exact/change.lua`` for the shard's last known directory. The batch keeps the directory.

        An add also removes expired entries from some buckets.
        """
        config, keys, shard, how = self.config, self.config.keys, batch.shard, tuple[int, ...]()
        batch.directory = directory = self.directory(shard)
        batch.generation = directory.generation
        prefix = keys.buckets(directory.generation, shard)
        halves = [*map(directory.half_of, batch.digests)]
        buckets = keys_of_halves(prefix, halves)
        if batch.verb == "add":
            swept = self._sweeps[shard].next_buckets(directory, len(halves))
            buckets += [f"{prefix}{bucket}" for bucket in swept]
            how = batch.ttl, _MAX_ENTRIES, LAST_BUCKET, *swept
        is_compared = int(batch.compared or config.shards == 1)
        batch.compared = False  # other clients may change the parameters before the next call
        checked = batch.verb, batch.lane.token, config.stored, is_compared, directory.generation
        return _CHANGE.call(
            (keys.config(shard), keys.layout(shard), keys.lane(batch.lane.name, shard), *buckets),
            (*checked, LANE_TTL_MS, packed(halves, batch.digests), *how),
        )

    def clear(self, shard: int, generation: str) -> Flow[None]:
        """Delete a shard's layout, which has this generation, and its parameters."""
        batch = ExactBatch([], shard, generation=generation)
        return self.send([batch], self._clear_call, Knowledge.STORED)

    def _clear_call(self, batch: ExactBatch) -> Call:
        config, keys, shard = self.config, self.config.keys, batch.shard
        return _CLEAR.call(
            (keys.lane(batch.lane.name, shard), keys.config(shard), keys.layout(shard)),
            (batch.lane.token, config.stored, LANE_TTL_MS, batch.generation),
        )

    def replay(self, batch: ExactBatch) -> Call:
        """Return a discard without items. The server keeps its token even if nothing is found."""
        return self.call(batch)

    def _lifetime_ms(self, batch: ExactBatch) -> int:
        """Return how long (ms) the items that a batch has added are remembered."""
        return batch.ttl or LANE_TTL_MS
