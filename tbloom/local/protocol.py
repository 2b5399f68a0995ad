"""The verbs of a filter without a server.

Items that are asked one call after another get the answers of a filter on Redis, false positives included. A call
with many items is cut into batches, each under the store's lock, so that other threads and processes get their turn:
first it probes for all items of a batch, then it adds the new ones. Where these fill the current part, it probes for those
that are left again, with a further part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tbloom.bloom.config import Config
from tbloom.bloom.hasher import by_shard
from tbloom.engine.flow import chunks
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import FilterFull
from tbloom.items import Item, check_keep, check_within
from tbloom.local.live import Live
from tbloom.local.memory import Store
from tbloom.local.shard import PlainProbes, Shard
from tbloom.window import Period

if TYPE_CHECKING:
    from tbloom.local.vectors import VectorProbes

#: The items of a batch, which is done under one lock.
_MAX_BATCH = 2500
#: Fewer items are not worth numpy's calls.
_MIN_VECTOR = 8
#: A shard, and items of it.
Batch = tuple[int, list[bytes]]
Probes = Callable[[Shard, list[bytes], int], "PlainProbes | VectorProbes"]


def choose_probes() -> Probes:
    """The way to probe for items: for all together, where numpy is installed and there are enough of them."""
    try:
        from tbloom.local.vectors import VectorProbes  # noqa: PLC0415 - numpy is optional
    except ImportError:
        return PlainProbes

    def probes(shard: Shard, digests: list[bytes], within: int) -> PlainProbes | VectorProbes:
        kind = PlainProbes if len(digests) < _MIN_VECTOR else VectorProbes
        return kind(shard, digests, within)

    return probes


class Added(NamedTuple):
    """How an item was added, in case the answer does not reach the caller."""

    #: What the store was then.
    generation: str
    #: When the item is forgotten (ms).
    until: int


class Protocol(Live):
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        super().__init__(config, store, adopts_shards=adopts_shards)
        self._probes = choose_probes()

    def add(self, item: Item, within: int | None, keep: int | None) -> bool:
        """Adds the item; True: it is new."""
        key, slices = self.config.digest(item), self.config.slices
        if keep is not None:
            return key in self.add_many([key], within, keep)
        within = slices if within is None else check_within(within, slices)
        with self.store.locked(is_change=True):
            pending = self.pending_answers
            shard = None if pending.exist and key in pending else self.at_hand(key)
            new = None if shard is None else shard.add(key, within)
        return key in self.add_many([key], within) if new is None else new

    def add_many(
        self, digests: list[bytes], within: int | None, keep: int | None = None
    ) -> dict[bytes, Added]:
        """Adds the items; returns the new ones."""
        age = check_keep(keep, within, self.config.slices)
        within, pending = check_within(within, self.config.slices), self.pending_answers
        if pending.exist:
            pending.check_room(self.config.name, digests)
        new: dict[bytes, Added] = {}
        try:
            self._visit(digests, partial(self._add_batch, (within, age), new), is_change=True)
        except BaseException:
            self.keep_pending(new)
            raise
        lasting = Added(self.store.generation, self.clock() + LANE_TTL_MS)
        return new | dict.fromkeys(pending.take_new(digests), lasting)

    def contains(self, item: Item, within: int | None) -> bool:
        """True: the item has been seen."""
        key, slices = self.config.digest(item), self.config.slices
        within = slices if within is None else check_within(within, slices)
        with self.store.locked():
            shard = self.at_hand(key)
            if shard is not None:
                return shard.probe(key, within) is None
        return self.contains_many([key], within)[0]

    def contains_many(self, digests: list[bytes], within: int | None) -> list[bool]:
        """True for each item that has been seen."""
        within, unseen = check_within(within, self.config.slices), set[bytes]()

        def probe(now: int, number: int, batch: list[bytes]) -> None:
            new = self._probes(self.shard(now, number), batch, within).new
            unseen.update(batch[place] for place in new)

        self._visit(digests, probe)
        return [key not in unseen for key in digests]

    def last_seen_many(self, digests: list[bytes]) -> list[Period | None]:
        """The newest live slice that holds each of the items."""
        found: dict[bytes, Period | None] = {}

        def probe(now: int, number: int, batch: list[bytes]) -> None:
            shard = self.shard(now, number)
            periods = [*map(self.config.window.period, self.current(now).slices), None]
            within = range(1, len(periods))
            for key in batch:
                # What the newest slices hold, more of them hold too.
                newer = bisect_left(within, x=True, key=lambda n: shard.probe(key, n) is None)
                found[key] = periods[newer]

        self._visit(digests, probe)
        return [found[key] for key in digests]

    def clear(self) -> None:
        """Forgets everything."""
        with self.store.locked(is_change=True):
            self.store.save(self.store.contents.cleared())

    def close(self) -> None:
        """Releases what the store holds."""
        with self.store.guard:
            self.store.close()
            self.use(self.config)  # drops views of what is closed

    def keep_pending(self, new: dict[bytes, Added]) -> None:
        """Keeps the answers of a call whose caller did not get them, for the next one that asks."""
        for added in set(new.values()):
            some = [key for key, how in new.items() if how == added]
            lasts = max(0, added.until - self.clock())
            self.pending_answers.keep_new(some, lasts, generation=added.generation)

    def _add_batch(
        self,
        slices: tuple[int, int],
        new: dict[bytes, Added],
        now: int,
        number: int,
        digests: list[bytes],
    ) -> list[bytes]:
        """Adds the items that the part has room for, and puts the new ones into ``new``; returns those that are left.

        ``slices``: the number of newest slices that are asked, and the age of the one that new items go into.
        """
        within, age = slices
        shard = self.shard(now, number, age, begins=True)
        probes = self._probes(shard, digests, within)
        room = shard.size.capacity - (shard.current.items if shard.current else 0)
        if self.config.grow:
            room = max(room, 1)  # a full part without a successor gets one
        count = min(len(probes.new), max(room, 0))
        if count:
            part = self.part_for(now, shard, number, count)
            part.count[0] += count
            added = Added(self.store.generation, self.current(now).expires_at(0, age))
            # Before their bits: an item that waits for its caller is added again when that asks, but no other is.
            new.update(dict.fromkeys([digests[place] for place in probes.new[:count]], added))
            probes.add(count, part)
        if count == len(probes.new):
            return []
        if not self.config.grow:
            raise FilterFull(self.config.name, self.config.first_capacity)
        return digests[probes.new[count] :]

    def _visit(
        self,
        digests: list[bytes],
        work: Callable[[int, int, list[bytes]], list[bytes] | None],
        *,
        is_change: bool = False,
    ) -> None:
        """Does the work on the items, batch by batch. It gets the time, the shard and items of it; it may return some of
        them that are left."""
        config, waiting = None, [(0, digests)]
        while waiting:
            with self.store.locked(is_change=is_change):
                now = self.agree()
                # At first, and where the stored filter's shards are adopted.
                if config is not self.config:
                    config, waiting = self.config, self._batches(waiting)
                if waiting:
                    number, batch = waiting.pop()
                    rest = work(now, number, batch)
                    if rest:
                        waiting.append((number, rest))

    def _batches(self, waiting: list[Batch]) -> list[Batch]:
        """The distinct items by shard, in batches; the first one comes last."""
        keys = chain.from_iterable(batch for _, batch in reversed(waiting))
        return [
            (shard, list(batch))
            for shard, items in by_shard(keys, self.config.shards).items()
            for batch in chunks(items, _MAX_BATCH)
        ][::-1]
