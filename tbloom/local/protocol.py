"""The work of the verbs of a filter without a server.

Items get the answers of a filter on Redis, false positives included. A call with many items is cut into batches, each
under the store's lock, so that other threads and processes get their turn.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from tbloom.arguments import check_keep, check_within
from tbloom.bloom.config import Config
from tbloom.bloom.hasher import shard_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.view import View
from tbloom.engine.flow import chunks
from tbloom.engine.keys import by_shard
from tbloom.engine.pending import Batch, PendingAnswers, in_order
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import ConfigMismatch, FilterFull
from tbloom.local.contents import PartEntry
from tbloom.local.memory import Store
from tbloom.local.shard import Part, Shard, key_of, part_bytes, part_of, parts_of
from tbloom.window import Period

#: The most items of a batch.
_MAX_BATCH = 2500


class Protocol:
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config: Config = config
        self.store: Store = store
        #: The time (ms). Tests set it.
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        #: New items whose answer did not reach the caller, kept for the next call, as on Redis.
        self.pending_answers: PendingAnswers = PendingAnswers()
        #: The current slice and the shards' parts, as read at ``_version`` of the store.
        self._current: View | None = None
        #: By shard, and by the age of the slice that new items go into.
        self._shards: dict[tuple[int, int], Shard] = {}
        self._version = -1

    def add(self, digest: bytes, within: int | None, keep: int | None) -> bool:
        """Add an item, and return whether it is new: ``add_many`` without batches, in a third of the time."""
        store, slices, shards = self.store, self.config.slices, self.config.shards
        # Without what most calls do not need: each function that is not called saves a hundredth.
        age = 0 if keep is None else check_keep(keep, within, slices)
        within = slices if within is None else check_within(within, slices)
        number = 0 if shards == 1 else shard_of(digest, shards)
        is_new = False
        try:
            with store.guard:
                try:
                    store.lock(is_change=True)
                    now = self.check_parameters_and_now()
                    shard = self._shard(now, number, age)
                    if not shard.begun:
                        shard = self._shard_to_add(now, number, age)
                    place = shard.place_of(digest, within)
                    if place is not None:
                        part = self._part_with_room(now, shard)
                        is_new = True  # as in ``add_many``
                        part.add(place)
                finally:
                    store.unlock()
            was_new = digest in self.pending_answers.new and self._take_pending([digest])
            return is_new or bool(was_new)
        except BaseException:
            self._keep_pending([digest] * is_new)
            raise

    def add_many(self, digests: list[bytes], within: int | None, keep: int | None) -> list[bool]:
        """Add the items, and return for each whether it is new."""
        age = check_keep(keep, within, self.config.slices)
        within, new = check_within(within, self.config.slices), list[bytes]()
        try:
            for number, batch in self._batches(digests):
                with self.store.locked(is_change=True):
                    now = self.check_parameters_and_now()
                    shard = self._shard_to_add(now, number, age)
                    for digest in batch:
                        place = shard.place_of(digest, within)
                        if place is None:
                            continue
                        part = self._part_with_room(now, shard)
                        # Before its bits are set, because only an item with a pending answer is added again after an
                        # interrupt.
                        new.append(digest)
                        part.add(place)
                        if self._version != self.store.version:
                            shard = self._shard_to_add(now, number, age)
            new += self._take_pending(digests)
            return in_order(dict.fromkeys(new, True), digests)
        except BaseException:
            self._keep_pending(new)
            raise

    def contains(self, digest: bytes, within: int | None) -> bool:
        """Return whether the item has been seen."""
        within, store = check_within(within, self.config.slices), self.store
        with store.guard:
            try:
                store.lock()
                number = shard_of(digest, self.config.shards)
                shard = self._shard(self.check_parameters_and_now(), number)
                return shard.place_of(digest, within) is None
            finally:
                store.unlock()

    def contains_many(self, digests: list[bytes], within: int | None) -> list[bool]:
        """Return whether each item has been seen."""
        within, seen = check_within(within, self.config.slices), set[bytes]()
        for number, batch in self._batches(digests):
            with self.store.locked():
                shard = self._shard(self.check_parameters_and_now(), number)
                seen.update(key for key in batch if shard.place_of(key, within) is None)
        return [key in seen for key in digests]

    def last_seen_many(self, digests: list[bytes]) -> list[Period | None]:
        """Return the newest live slice that has each item, or None."""
        found: dict[bytes, Period | None] = {}
        for number, batch in self._batches(digests):
            with self.store.locked():
                now = self.check_parameters_and_now()
                shard = self._shard(now, number)
                periods = [*map(self.config.window.period, self.current(now).slices), None]
                within = range(1, len(periods))
                for key in batch:
                    # If the newest n slices have it, so have the newest n + 1.
                    newer = bisect_left(
                        within, x=True, key=lambda n: shard.place_of(key, n) is None
                    )
                    found[key] = periods[newer]
        return [found[key] for key in digests]

    def clear(self) -> None:
        """Forget everything."""
        with self.store.locked(is_change=True):
            self.store.save(self.store.contents.cleared())

    def close(self) -> None:
        """Release what the store holds."""
        with self.store.guard:
            self.store.close()
            self._current, self._shards = None, {}  # they have views of the closed file

    @property
    def _generation(self) -> str:
        """Pending answers end with a clear(), and a forked child leaves them to its parent."""
        return f"{self.store.contents.epoch} {os.getpid()}"

    def _take_pending(self, digests: list[bytes]) -> Iterable[bytes]:
        """Return those of the items that a call without an answer has found new."""
        asked = Batch(digests, generation=self._generation)
        return self.pending_answers.take(self.pending_answers.known_new([asked]))

    def _keep_pending(self, new: list[bytes]) -> None:
        """Keep the answers of a call that fails for the next call that asks, as on Redis."""
        unanswered = Batch(new, generation=self._generation, answers="1" * len(new))
        self.pending_answers.keep(unanswered, LANE_TTL_MS)

    # The store must be locked for all methods below.

    def check_parameters_and_now(self) -> int:
        """Return the time. Raise ConfigMismatch if the stored parameters differ from the client's."""
        now = self.clock()
        contents = self.store.contents
        if contents.stored != self.config.stored and (stored := contents.parameters(now)):
            place = getattr(self.store, "path", self.config.name)
            differing = self.config.differences(stored)
            raise ConfigMismatch(place, differing, stored, "give the same, or take another path")
        return now

    def current(self, now: int) -> View:
        """Return the view of the live slices, with the stored layouts. Call ``check_parameters_and_now`` first."""
        current, contents = self._current, self.store.contents
        if (
            current is None
            or self._version != self.store.version
            or not current.begins <= now < current.ends
        ):
            texts = {
                shard: contents.layout(shard, now)
                for shard in range(self.config.shards)
                if contents.stored == self.config.stored
            }
            layouts = {
                shard: Layout(self.config, text, shard) for shard, text in texts.items() if text
            }
            self._current = None  # until all is read: an interrupt may come at any line
            self._shards, self._version = {}, self.store.version
            current = self._current = View(self.config, now, layouts)
        return current

    def _batches(self, digests: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the distinct items in batches, each with its shard."""
        for number, items in by_shard(digests, self.config.shards, shard_of).items():
            for batch in chunks(items, _MAX_BATCH):
                yield number, list(batch)

    def _shard(self, now: int, number: int, age: int = 0) -> Shard:
        """Return the shard's parts at the store's present version."""
        current = self.current(now)
        shard = self._shards.get((number, age))
        if shard is None:
            shard = self._shards[number, age] = Shard(self.store, current, number, age)
        return shard

    def _shard_to_add(self, now: int, number: int, age: int) -> Shard:
        """Return the shard's parts. Write the layout of a slice that begins."""
        shard = self._shard(now, number, age)
        if not shard.begun:
            self._begin_slice(now, number)
            shard = self._shard(now, number, age)
        return shard

    def _part_with_room(self, now: int, shard: Shard) -> Part:
        """Return the newest part with room for an item, created if it is missing. If the item fills it, add a further part."""
        part, capacity, grow = shard.newest, shard.size.capacity, self.config.grow
        items = part.count[0] if part else 0
        if items >= capacity and not grow:
            raise FilterFull(self.config.name, self.config.first_capacity, shard.number)
        fills = grow and items + 1 >= capacity
        if part is not None and not fills:
            return part
        contents = self.store.contents.copy(now)
        expires = self.current(now).expires_at(shard.number, shard.age)
        if part is None:
            contents.keep(self.config.stored, expires)
            contents.parts[shard.key] = PartEntry(expires, part_bytes(shard.size))
        if fills:
            contents.keep_layout(shard.number, shard.grown(), expires)
        # All that can fail is done before the first bit is set.
        self.store.save(contents)
        part = part_of(self.store, shard.key, shard.size)
        assert part is not None  # noqa: S101 - it was saved
        return part

    def _begin_slice(self, now: int, shard: int) -> None:
        """Give a slice that begins room for as many items as the last one had, if slices have grown (bloom/dispatcher.py)."""
        current = self.current(now)
        layout, labels = current.layout(shard), current.labels
        contents = self.store.contents.copy(now)
        if key_of(labels[0], shard, 0) in contents.parts:  # the clock was set back since it began
            text = layout.grown(labels[0], labels)
        else:
            last = str(layout.sized_after(labels[0], labels))
            parts = parts_of(self.store, current, last, shard)
            held = sum(part.items for _, part in parts if part)
            text = layout.with_parts({labels[0]: [layout.beginning(held)]}, labels)
        expires = current.expires_at(shard)
        contents.keep(self.config.stored, expires)  # without them, a layout means nothing
        contents.keep_layout(shard, text, expires)
        self.store.save(contents)
