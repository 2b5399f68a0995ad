"""The verbs of a filter without a server: what ``conversation`` and the Lua scripts do together.

The answers are the same as those of a filter on Redis that is asked the same, false positives
included, so batches are cut as there: no item of a batch sees the bits of another one, a part that
becomes full leaves the rest of its batch for later, after the other batches that are under way.

Each round of batches is one locked look at the store. The verbs are generators that yield between
rounds, so that other threads, tasks and processes get their turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tbloom.arguments import digests_of
from tbloom.batches import MOST_UNTOLD
from tbloom.calls import CALLS_AT_ONCE, chunks
from tbloom.config import Config
from tbloom.conversation import items_per_call
from tbloom.errors import ConfigMismatch, FilterFull
from tbloom.hashing import Item, by_shard, digest, encode, shard_of
from tbloom.lanes import LANE_TTL_MS
from tbloom.layout import Layout
from tbloom.local.bound import Bound, Look, PlainLook, key_of, part_of
from tbloom.local.contents import PartEntry
from tbloom.local.memory import Store
from tbloom.local.parts import Part
from tbloom.plan import Plan
from tbloom.sizing import key_bytes

T = TypeVar("T")
Steps = Generator[None, None, T]

#: lua/shared.lua's can_note: what one command of Redis carries, in words, of which a bit takes 4.
_MOST_WORDS, _WORDS_OF_BIT = 7900, 4
_LOOK_AT_ONCE = 2500


def choose_look() -> Callable[[Bound, list[int], int], Look]:
    try:
        from tbloom.local.vectors import VectorLook  # noqa: PLC0415 - numpy need not be there
    except ImportError:
        return PlainLook
    return lambda bound, digests, within: (
        PlainLook(bound, digests, within)
        if len(digests) < _FEW
        else VectorLook(bound, digests, within)
    )


#: Fewer items are not worth numpy's calls.
_FEW = 8


@dataclass(slots=True, eq=False)
class Batch:
    """Items that Redis would be asked for in one call."""

    shard: int
    digests: list[int]


class Engine:
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        self.config = config
        self.store = store
        #: What time it is (ms). The tests set it.
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self._adopts_shards = adopts_shards
        self._look = choose_look()
        #: New items whose caller was never told, and until when (ms) somebody else may be: as long as on Redis.
        self._untold: dict[int, int] = {}
        self._epoch = store.contents.epoch
        self._forget_plan()

    def _forget_plan(self) -> None:
        self._plan: Plan | None = None
        self._layouts: dict[int, Layout] = {}
        self._bounds: dict[int, Bound] = {}
        self._version = -1

    def add(self, item: Item, within: int) -> bool:
        """Is the item new?"""
        key = digest(encode(item))
        store = self.store
        with store.guard:
            store.lock(exclusive=True)
            try:
                plan = self._plan
                if (
                    plan is not None
                    and plan.begins <= self.clock() < plan.ends
                    and self._version == store.version
                    and not self._untold
                ):
                    shards = self.config.shards
                    bound = self._bounds.get(shard_of(key, shards) if shards > 1 else 0)
                    if bound is not None and bound.begun:
                        new = bound.add(key, within)
                        if new is not None:
                            return new
            finally:
                store.unlock()
        return finish(self.add_digests([key], within))[0]

    def add_many(self, items: Iterable[Item], within: int) -> Steps[list[bool]]:
        """Which of the items are new? Of a repeated one, the first."""
        return (yield from self.add_digests(digests_of(items), within))

    def add_digests(self, digests: list[int], within: int) -> Steps[list[bool]]:
        """The same of items by their digests."""
        new = self._take_untold(digests)
        asked = [key for key in digests if key not in new] if new else digests
        try:
            yield from self._adopting(lambda: self._add_all(asked, within, new))
        except BaseException:  # the steps' end too, when a task was cancelled
            with self.store.guard:
                self._keep_untold(new)
            raise
        # Popped by its first occurrence, so that the others are told "seen".
        return [new.pop(key, False) for key in digests]

    def contains_many(self, digests: list[int], within: int) -> Steps[list[bool]]:
        """Which of the items have been seen?"""
        seen: set[int] = set()
        yield from self._adopting(lambda: self._look_all(digests, within, seen))
        return [key in seen for key in digests]

    def clear(self) -> None:
        """Forgets everything."""
        with self.store.guard:
            self.store.lock(exclusive=True)
            try:
                self.store.save(self.store.contents.cleared())
            finally:
                self.store.unlock()

    def _adopting(self, verb: Callable[[], Steps[None]]) -> Steps[None]:
        """The verb, with the stored filter's shards if that is all that differs."""
        try:
            yield from verb()
        except ConfigMismatch as error:
            if not self.adopts(error):
                raise
            yield from verb()

    def adopts(self, error: ConfigMismatch) -> bool:
        """Whether the filter goes on with the stored number of shards; the caller did not choose another."""
        if not self._adopts_shards or error.differences.keys() != {"shards"}:
            return False
        with self.store.guard:
            self.config = replace(self.config, shards=error.differences["shards"][0])
            self._forget_plan()
        return True

    def _add_all(self, digests: list[int], within: int, new: dict[int, bool]) -> Steps[None]:
        with self.store.guard:
            batches = self._batches(digests)
        for some in chunks(batches, CALLS_AT_ONCE):
            pending = list(some)
            while pending:
                with self.store.guard:
                    self.store.lock(exclusive=True)
                    try:
                        pending = self._add_round(pending, within, new)
                    finally:
                        self.store.unlock()
                yield

    def _batches(self, digests: list[int]) -> list[Batch]:
        plan = self._plan_at(self.clock())
        return [
            Batch(shard, list(some))
            for shard, keys in by_shard(digests, self.config.shards).items()
            for some in chunks(keys, items_per_call(self.config, plan.shard(shard)))
        ]

    def _add_round(self, pending: list[Batch], within: int, new: dict[int, bool]) -> list[Batch]:
        """Adds the items of each batch; returns those that have to wait for another layout, and what is left over."""
        now = self.clock()
        shards: dict[int, list[Batch]] = {}
        for batch in pending:
            shards.setdefault(batch.shard, []).append(batch)
        plan = self.prepare(now, shards, store=True)
        waiting: set[Batch] = set()
        rest: list[Batch] = []
        is_full = False
        for shard, batches in shards.items():
            bound, text, begin = self._bound(shard), plan.layout(shard).text, 0
            look = self._look(bound, [key for batch in batches for key in batch.digests], within)
            for batch in batches:
                if self._layout(shard, now) != text:  # an earlier batch has filled the part
                    waiting.add(batch)
                    continue
                answered, full = self._add_batch(now, bound, look, batch, begin, new)
                begin += len(batch.digests)
                is_full = is_full or full
                if answered < len(batch.digests):
                    rest.append(Batch(shard, batch.digests[answered:]))
                bound = self._bound(shard) if self._version != self.store.version else bound
        if is_full:  # raised once all that there was room for is added
            raise FilterFull(self.config.name, self.config.capacity)
        return [batch for batch in pending if batch in waiting] + rest

    def _add_batch(
        self, now: int, bound: Bound, look: Look, batch: Batch, begin: int, new: dict[int, bool]
    ) -> tuple[int, bool]:
        """lua/add.lua: how many items have an answer, and whether the next one finds the slice full."""
        answered = len(batch.digests)
        found = look.new(begin, begin + answered, bound.current)
        grows, is_full = self.config.grow, False
        room = bound.size.capacity - (bound.current.items if bound.current else 0)
        # There is always room for one, if the slice may grow.
        room = max(room, 1 if grows else 0)
        if len(found) > room:
            answered, is_full = int(found[room]) - begin, not grows
            found = found[:room]
        if len(found) * bound.size.hashes * _WORDS_OF_BIT >= _MOST_WORDS:
            words = 0
            for place, number in enumerate(found):
                if words + _WORDS_OF_BIT * bound.size.hashes >= _MOST_WORDS:
                    answered, is_full = int(number) - begin, False
                    found = found[:place]
                    break
                offsets = bound.hasher.offsets(batch.digests[int(number) - begin])
                zero = bound.current.first_zero(offsets) if bound.current else 0
                words += _WORDS_OF_BIT * (bound.size.hashes - (zero or 0))
        if len(found):
            part = self._room_for(now, bound, batch.shard, len(found))
            part.count(len(found))
            look.add(found, part)
            for number in found:
                new[batch.digests[number - begin]] = True
        return answered, is_full

    def _room_for(self, now: int, bound: Bound, shard: int, count: int) -> Part:
        """The current part, begun if need be; if so many items fill it, the slice has another one after this."""
        store, plan, part = self.store, self._plan_at(now), bound.current
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

    def _look_all(self, digests: list[int], within: int, seen: set[int]) -> Steps[None]:
        for shard, keys in by_shard(digests, self.config.shards).items():
            for some in chunks(keys, _LOOK_AT_ONCE):
                with self.store.guard:
                    self.store.lock(exclusive=False)
                    try:
                        self.prepare(self.clock(), [shard], store=False)
                        bound = self._bound(shard)
                        unseen = self._look(bound, list(some), within).new(0, len(some), None)
                    finally:
                        self.store.unlock()
                left = {some[number] for number in unseen}
                seen.update(key for key in some if key not in left)
                yield

    def prepare(self, now: int, shards: Iterable[int], *, store: bool) -> Plan:
        """The plan for now, with the layouts of these shards. Raises ConfigMismatch.

        ``store``: items are to be added, so a slice that begins gets its layout.
        """
        contents = self.store.contents
        if contents.epoch != self._epoch:  # somebody has cleared it, and what was untold is gone
            self._untold.clear()
            self._epoch = contents.epoch
        stored = contents.parameters(now)
        if stored not in ("", self.config.stored):
            raise ConfigMismatch(self.config.name, self.config.differences(stored), stored)
        plan = self._plan_at(now)
        for shard in shards:
            text = self._layout(shard, now)
            if plan.layout(shard).text != text:
                self._learn(plan, shard, text)
            if store and plan.must_begin_after(shard) is not None:
                self._begin_slice(now, plan, shard)
        return plan

    def _begin_slice(self, now: int, plan: Plan, shard: int) -> None:
        """Where slices have grown, one that begins has room for what the last one held (lua/relayout.lua)."""
        layout, label = plan.layout(shard), plan.labels[0]
        last = plan.must_begin_after(shard) or label
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

    def _layout(self, shard: int, now: int) -> str:
        """The stored layout, if it is that of a filter with our parameters."""
        contents = self.store.contents
        return contents.layout(shard, now) if contents.stored == self.config.stored else ""

    def _learn(self, plan: Plan, shard: int, text: str) -> None:
        plan.learn_layout(shard, text)
        self._version = -1

    def _bound(self, shard: int) -> Bound:
        """The shard's parts, where they are now; ``prepare`` comes first."""
        if self._version != self.store.version:
            self._bounds, self._version = {}, self.store.version
        bound = self._bounds.get(shard)
        if bound is None:
            assert self._plan is not None  # noqa: S101 - prepared
            bound = self._bounds[shard] = Bound(self.store, self._plan, shard)
        return bound

    def _plan_at(self, now: int) -> Plan:
        plan = self._plan
        if plan is None or not plan.fits(now):
            plan = self._plan = Plan(self.config, now, self._layouts)
            self._version = -1
        return plan

    def _take_untold(self, digests: list[int]) -> dict[int, bool]:
        """Those of the items that are new, but whose caller was never told: they are the caller's now."""
        if not self._untold:
            return {}
        with self.store.guard:
            now, untold = self.clock(), self._untold
            return {key: True for key in digests if untold.pop(key, 0) > now}

    def _keep_untold(self, new: dict[int, bool]) -> None:
        self._untold.update(dict.fromkeys(new, self.clock() + LANE_TTL_MS))
        while len(self._untold) > MOST_UNTOLD:
            del self._untold[next(iter(self._untold))]


def finish(steps: Steps[T]) -> T:
    """The answer, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
