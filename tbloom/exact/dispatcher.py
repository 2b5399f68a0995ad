"""One client's calls to one exact filter."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from tbloom.engine.batches import Agreement
from tbloom.engine.buckets import BucketDispatcher
from tbloom.engine.directory import BITS, Directory
from tbloom.engine.flow import Call, Flow, Status, chunks, request, text
from tbloom.engine.keys import by_shard
from tbloom.engine.parameters import mismatch, refusal
from tbloom.engine.pending import Answers
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.exact import calls
from tbloom.exact.calls import ExactBatch
from tbloom.exact.config import ExactConfig

#: The most items of one call. A new item takes the server some 9 us.
_ITEMS_PER_CALL = 150
#: The fewest and the most buckets that a call sweeps besides those of its items; each item adds one to the most. A bucket
#: takes the server 1 us (no entry is dead) to 13 us (nearly all are).
_MIN_SWEEP, _MAX_SWEEP = 1, 64
#: The next call sweeps twice as many buckets if there are more dead entries than this share of the live ones.
_MANY_DEAD = 0.05
#: It does so too if fewer entries than this are left in the swept buckets. A client that looks at ten entries for each new
#: item has looked at all of them before a tenth can have died.
_FEW_LEFT = 12
#: A client that only looks up compares the parameters again after this time (s).
_LOOK_SECONDS = 60.0


class _Sweep:
    """The position up to which a shard's buckets are swept, and the number that the next call sweeps."""

    __slots__ = ("_buckets", "_position")

    def __init__(self) -> None:
        self._position = random.getrandbits(BITS)
        self._buckets = _MIN_SWEEP

    def next_buckets(self, directory: Directory, items: int) -> list[int]:
        """Return the buckets to sweep in the next call, which has this many items."""
        buckets: dict[int, None] = {}
        for _ in range(min(self._buckets, _MAX_SWEEP + items)):
            bucket, self._position = directory.bucket_after(self._position)
            if bucket in buckets:  # the directory has no others
                break
            buckets[bucket] = None
        return [*buckets]

    def note(self, dead: int, left: int) -> None:
        """Adapt to the number of dead entries that a call has swept, and of entries left in the same buckets."""
        if dead > _MANY_DEAD * left or left < _FEW_LEFT:
            self._buckets = min(2 * self._buckets, _MAX_SWEEP + _ITEMS_PER_CALL)
        elif left >= 4 * _FEW_LEFT and self._buckets > _MIN_SWEEP:
            self._buckets //= 2


def _shard_of(digest: int, shards: int) -> int:
    return (digest >> 96) * shards >> 32


class ExactDispatcher(BucketDispatcher[ExactBatch]):
    """One client's calls to an exact filter, and its view of it."""

    _BATCH = ExactBatch

    def __init__(self, config: ExactConfig) -> None:
        super().__init__(config.name, config.keys, config.name, "clear()")
        self.config = config
        self._sweeps: defaultdict[int, _Sweep] = defaultdict(_Sweep)
        #: Until when the parameters are known to be stored (``time.monotonic``), for items of at most this lifetime (ms).
        self._compared: tuple[float, int] = (0.0, 0)

    def add_items(self, digests: list[int], ttl: int) -> Flow[Answers]:
        """Add the items that are new, for ``ttl`` ms, and return the answers."""
        return self.add(digests, self.batches(digests, ttl), partial(self.call, "add"))

    def discard(self, digests: list[int]) -> Flow[Answers]:
        """Remove the items, and return which of them were remembered."""
        return self.remove_items(digests, self.batches(digests), partial(self.call, "discard"))

    def batches(self, digests: Iterable[int], ttl: int = 0) -> list[ExactBatch]:
        """Return the distinct digests, by shard, in batches for one call each."""
        return [
            ExactBatch(list(some), shard, ttl=ttl)
            for shard, keys in by_shard(digests, self.config.shards, _shard_of).items()
            for some in chunks(keys, _ITEMS_PER_CALL)
        ]

    def forget(self) -> None:
        """Forget the view of a filter that is cleared: it gets new buckets, and parameters must be compared again."""
        self._directories.clear()
        self.outdated.clear()
        self._compared = (0.0, 0)

    def _next_step(self, batch: ExactBatch, agreement: Agreement) -> Flow[None] | None:
        """Return a flow that reads a changed layout, or compares the parameters of several shards after some time, or None."""
        step = super()._next_step(batch, agreement)
        until, longest = self._compared
        is_due = time.monotonic() >= until or batch.ttl > longest
        # A single shard's script compares the parameters itself.
        if step is None and self.config.shards > 1 and is_due:
            return self._compare(batch)
        return step

    def _compare(self, batch: ExactBatch) -> Flow[None]:
        """Compare the parameters at the filter's root key.

        Before an add, also store them there. They stay until all items that are added before the next comparison have
        expired.
        """
        root, stored, ttl = self.config.keys.root, self.config.stored, batch.ttl
        first = [Call(("SET", root, stored, "PX", 2 * ttl, "NX"))] if ttl else []
        replies = yield from request([*first, Call(("GET", root)), Call(("PTTL", root))])
        found, left = replies[-2:]
        if found is None and ttl:
            return  # another client has cleared the filter meanwhile
        if found is not None and text(found) != stored:
            raise mismatch(self.config, found)
        if 0 <= left < 1.5 * ttl:
            yield from request([Call(("PEXPIRE", root, 2 * ttl))])
        self._compared = time.monotonic() + (ttl / 2000 or _LOOK_SECONDS), ttl
        batch.compared = True

    def _learn(self, batch: ExactBatch, reply: Any) -> None:
        """See ``Dispatcher._learn``."""
        status, payload, *more = reply
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload, complete=True)
                self._note_swept(batch, *more)
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

    def _note_swept(self, batch: ExactBatch, splits: list[int], *more: Any) -> None:
        """Note the rest of a reply: splits, and the times of a look-up, or the entries that an add has swept."""
        if batch.directory is not None:
            batch.directory.note_splits(splits)
        match more:
            case [times]:
                batch.times = times
            case [dead, left]:
                self._sweeps[batch.shard].note(dead, left)

    def call(self, verb: str, batch: ExactBatch) -> Call:
        """Return a call of ``lua/exact/change.lua``, made from the shard's last known directory, which the batch keeps."""
        batch.directory = directory = self.directory(batch.shard)
        batch.generation = directory.generation
        self.pending_answers.note_generation(batch.shard, directory.generation)
        swept = list[int]()
        if verb == "add":
            swept = self._sweeps[batch.shard].next_buckets(directory, len(batch.digests))
        call = calls.change(self.config, verb, batch, directory, swept)
        batch.compared = False  # other clients may change the parameters before a further call
        return call

    def replay(self, batch: ExactBatch) -> Call:
        """Return a discard of no items: the server keeps its answer in any case."""
        return self.call("discard", batch)

    def _lifetime_ms(self, batch: ExactBatch) -> int:
        """Return how long (ms) the items that a batch has added are remembered."""
        return batch.ttl or LANE_TTL_MS
