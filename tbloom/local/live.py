"""What is live now in a store, for one filter: the slices, the layouts and the parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tbloom.bloom.config import Config
from tbloom.bloom.hasher import shard_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import key_bytes
from tbloom.engine.pending import PendingAnswers
from tbloom.errors import ConfigMismatch
from tbloom.local.contents import PartEntry
from tbloom.local.memory import Store
from tbloom.local.shard import Part, Shard, key_of, part_of, parts_of


class Live:
    """One filter in one store. Its methods need the store's lock."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        self.store = store
        #: True: the client gave no number of shards, so that of the stored filter counts.
        self._adopts_shards = adopts_shards
        #: The time (ms). Tests set it.
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        #: New items whose answer did not reach the client: kept for the next call, as on Redis.
        self.pending_answers = PendingAnswers()
        self.use(config)

    def use(self, config: Config) -> None:
        """Uses other parameters."""
        self.config = config
        #: The current slice and the shards' parts, as they were found at this version of the store.
        self._current: SliceCalls | None = None
        #: By their numbers, and the age of the slice that new items go into.
        self._shards: dict[tuple[int, int], Shard] = {}
        self._version = -1

    def at_hand(self, digest: bytes) -> Shard | None:
        """The parts of the item's shard, if the item can be added at once; else None."""
        if not self._is_current(self.clock()):
            return None
        shards = self.config.shards
        shard = self._shards.get((shard_of(digest, shards) if shards > 1 else 0, 0))
        return shard if shard is not None and shard.begun else None

    def agree(self) -> int:
        """Compares the stored parameters with ours, and adopts the stored number of shards where only that differs;
        returns the time. Raises ConfigMismatch."""
        now = self.clock()
        self.pending_answers.note_generation(0, self.store.generation)
        stored = self.store.contents.parameters(now)
        if stored not in ("", self.config.stored):
            found = self.config.differences(stored)
            if not self._adopts_shards or found.keys() != {"shards"}:
                place = getattr(self.store, "path", self.config.name)
                raise ConfigMismatch(place, found, stored, "give the same, or take another path")
            self.use(replace(self.config, shards=found["shards"][0]))
        return now

    def current(self, now: int) -> SliceCalls:
        """The current slice, with the stored layouts; ``agree`` comes first."""
        current = self._current
        if current is None or not self._is_current(now):
            texts = {shard: self.layout(shard, now) for shard in range(self.config.shards)}
            layouts = {
                shard: Layout(self.config, text, shard) for shard, text in texts.items() if text
            }
            current = self._current = SliceCalls(self.config, now, layouts)
            self._shards, self._version = {}, self.store.version
        return current

    def layout(self, shard: int, now: int) -> str:
        """The stored layout of a filter with our parameters; else an empty text."""
        contents = self.store.contents
        return contents.layout(shard, now) if contents.stored == self.config.stored else ""

    def shard(self, now: int, number: int, age: int = 0, *, begins: bool = False) -> Shard:
        """The shard's parts, where they are now; ``agree`` comes first.

        ``begins``: items are to be added, so a slice that begins gets its layout.
        """
        current = self.current(now)
        shard = self._shards.get((number, age))
        if shard is None:
            shard = self._shards[number, age] = Shard(self.store, current, number, age)
        if begins and not shard.begun:
            self._begin_slice(now, current, number)
            return self.shard(now, number, age)
        return shard

    def part_for(self, now: int, shard: Shard, number: int, count: int) -> Part:
        """The current part, begun if need be. Where ``count`` items fill it, the slice gets a further one."""
        store, part = self.store, shard.current
        items = part.items if part else 0
        fills = self.config.grow and items + count >= shard.size.capacity
        if part is not None and not fills:
            return part
        contents, expires = (
            store.contents.copy(now),
            self.current(now).expires_at(number, shard.age),
        )
        if part is None:
            contents.keep(self.config.stored, expires)
            contents.parts[shard.key] = PartEntry(expires, key_bytes(shard.size.bits))
        if fills:
            contents.keep_layout(number, shard.grown, expires)
        # All that can fail is done before the first bit is set.
        store.save(contents)
        part = part_of(store, shard.key, shard.size)
        assert part is not None  # noqa: S101 - it was saved
        return part

    def _is_current(self, now: int) -> bool:
        """True: what was found holds."""
        current = self._current
        return (
            current is not None
            and self._version == self.store.version
            and current.begins <= now < current.ends
        )

    def _begin_slice(self, now: int, current: SliceCalls, shard: int) -> None:
        """Gives a slice that begins room for what the last one held, where slices have grown (lua/bloom/begin_slice.lua)."""
        layout, labels, last = (
            current.layout(shard),
            current.labels,
            current.shard(shard).begins_after,
        )
        parts = parts_of(self.store, current, str(last), shard)
        contents = self.store.contents.copy(now)
        if key_of(labels[0], shard, 0) in contents.parts:  # the clock was set back since it began
            text = layout.grown(labels[0], labels)
        else:
            held = sum(part.items for _, part in parts if part)
            text = layout.with_parts({labels[0]: [layout.beginning(held)]}, labels)
        contents.keep_layout(shard, text, current.expires_at(shard))
        self.store.save(contents)
