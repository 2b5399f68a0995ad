"""What is live now in a store, for one filter: the plan, the layouts, and where the parts are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from tbloom.bloom.config import Config
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import key_bytes
from tbloom.engine.keys import shard_of
from tbloom.errors import ConfigMismatch
from tbloom.local.bound import Bound, key_of, part_of
from tbloom.local.contents import PartEntry
from tbloom.local.memory import Locked, Store, Unlocked
from tbloom.local.parts import Part


class Live:
    """One filter in one store, which is locked whenever this is asked."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        self.store = store
        #: ``with store.guard, unlocked, shared`` (or ``exclusive``): a look, or a change, that is whole to all others.
        self.unlocked = Unlocked(store)
        self.shared = Locked(store, exclusive=False)
        self.exclusive = Locked(store, exclusive=True)
        #: Whether the stored filter may have another number of shards; the caller did not choose one.
        self._adopts_shards = adopts_shards
        #: What time it is (ms). The tests set it.
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        #: New items whose caller was never told, and until when (ms) somebody else may be: as long as on Redis.
        self.pending_answers: dict[int, int] = {}
        #: Of which the untold items are.
        self.era = store.era
        self.go_on_with(config)

    def go_on_with(self, config: Config) -> None:
        """Other parameters."""
        self.config = config
        self._plan: SliceCalls | None = None
        self._layouts: dict[int, Layout] = {}
        #: The shards' parts, as they were found at this version of the store.
        self._bounds: dict[int, Bound] = {}
        self._version = self.store.version

    def at_hand(self, digest: int) -> Bound | None:
        """The parts of the item's shard, if nothing has to be done before it is added; else None."""
        plan, shards = self._plan, self.config.shards
        if (
            plan is None
            or not plan.begins <= self.clock() < plan.ends
            or self._version != self.store.version
        ):
            return None
        bound = self._bounds.get(shard_of(digest, shards) if shards > 1 else 0)
        return bound if bound is not None and bound.begun else None

    def agree(self) -> int:
        """Compares the stored parameters with ours, and goes on with the stored filter's shards if that is all that
        differs; returns the time. Raises ConfigMismatch."""
        now = self.clock()
        self.meet_era()
        stored = self.store.contents.parameters(now)
        if stored not in ("", self.config.stored):
            found = self.config.differences(stored)
            if not self._adopts_shards or found.keys() != {"shards"}:
                raise ConfigMismatch(self.config.name, found, stored)
            self.go_on_with(replace(self.config, shards=found["shards"][0]))
        return now

    def prepare(self, now: int, shards: Iterable[int], *, store: bool) -> SliceCalls:
        """The plan for now, with the layouts of these shards; ``agree`` comes first.

        ``store``: items are to be added, so a slice that begins gets its layout.
        """
        plan = self.plan_at(now)
        for shard in shards:
            text = self.layout(shard, now)
            if plan.layout(shard).text != text:
                self._learn(plan, shard, text)
            if store and (last := plan.must_begin_after(shard)) is not None:
                self._begin_slice(now, plan, shard, last)
        return plan

    def meet_era(self) -> None:
        """If somebody has cleared the filter, what was untold is gone with it; in a forked child, it is the parent's."""
        if self.store.era != self.era:
            self.pending_answers.clear()
            self.era = self.store.era

    def _begin_slice(self, now: int, plan: SliceCalls, shard: int, last: str) -> None:
        """Where slices have grown, one that begins has room for what the last one held (lua/bloom/begin_slice.lua)."""
        layout, label = plan.layout(shard), plan.labels[0]
        sizes = enumerate(layout.parts(last))
        parts = [part_of(self.store, key_of(last, shard, number), size) for number, size in sizes]
        contents = self.store.contents.copy(now)
        if key_of(label, shard, 0) in contents.parts:  # before the clock was set back
            text = layout.grown(label, plan.labels)
        else:
            text = layout.begun(label, plan.labels, sum(part.items for part in parts if part))
        contents.keep_layout(shard, text, plan.expires_at(shard))
        self.store.save(contents)
        self._learn(plan, shard, text)

    def layout(self, shard: int, now: int) -> str:
        """The stored layout, if it is that of a filter with our parameters."""
        contents = self.store.contents
        return contents.layout(shard, now) if contents.stored == self.config.stored else ""

    def _learn(self, plan: SliceCalls, shard: int, text: str) -> None:
        plan.learn_layout(shard, text)
        self._bounds.pop(shard, None)

    def bound(self, shard: int) -> Bound:
        """The shard's parts, where they are now; ``prepare`` comes first."""
        if self._version != self.store.version:
            self._bounds, self._version = {}, self.store.version
        bound = self._bounds.get(shard)
        if bound is None:
            assert self._plan is not None  # noqa: S101 - prepared
            bound = self._bounds[shard] = Bound(self.store, self._plan, shard)
        return bound

    def plan_at(self, now: int) -> SliceCalls:
        """The plan for now, with the layouts that are known."""
        plan = self._plan
        if plan is None or not plan.fits(now):
            plan = self._plan = SliceCalls(self.config, now, self._layouts)
            self._bounds = {}
        return plan

    def room_for(self, now: int, bound: Bound, shard: int, count: int) -> Part:
        """The current part, begun if need be; if so many items fill it, the slice has another one after this."""
        store, plan, part = self.store, self.plan_at(now), bound.current
        items = part.items if part else 0
        fills = self.config.grow and items + count >= bound.size.capacity
        if part is not None and not fills:
            return part
        contents, expires = store.contents.copy(now), plan.expires_at(shard)
        if part is None:
            contents.keep(self.config.stored, expires)
            contents.parts[bound.key] = PartEntry(expires, key_bytes(bound.size.bits))
        if fills:
            contents.keep_layout(shard, bound.plan.grown, expires)
        # All that can fail is done before the first bit is set.
        store.save(contents)
        part = part_of(store, bound.key, bound.size)
        assert part is not None  # noqa: S101 - it was saved
        return part
