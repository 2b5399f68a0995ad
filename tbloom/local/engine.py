"""The verbs of a filter without a server: what ``conversation`` and the Lua scripts do together.

The answers are the same as those of a filter on Redis that is asked the same, false positives
included, so batches are cut as there: no item of a batch sees the bits of another one, a part that
becomes full leaves the rest of its batch for later, after the other batches that are under way.

Each round of batches is one locked look at the store. The verbs are generators that yield between
rounds, so that other threads, tasks and processes get their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tbloom.arguments import digests_of
from tbloom.batches import MOST_UNTOLD
from tbloom.calls import CALLS_AT_ONCE, chunks
from tbloom.config import Config
from tbloom.conversation import items_per_call
from tbloom.errors import ConfigMismatch, FilterFull
from tbloom.hashing import Item, by_shard, digest, encode, shard_of
from tbloom.lanes import LANE_TTL_MS
from tbloom.local.bound import Bound, Look, PlainLook
from tbloom.local.live import Live
from tbloom.local.memory import Store

T = TypeVar("T")
Steps = Generator[None, None, T]

#: lua/shared.lua's can_note: what one command of Redis carries, in words, of which a bit takes 4.
_MOST_WORDS, _WORDS_OF_BIT = 7900, 4
#: Items that are looked at under one lock.
_LOOK_AT_ONCE = 2500
#: Fewer items are not worth numpy's calls.
_FEW = 8


def choose_look() -> Callable[[Bound, list[int], int], Look]:
    """How items are looked at: together, where that is possible and worth it."""
    try:
        from tbloom.local.vectors import VectorLook  # noqa: PLC0415 - numpy need not be there
    except ImportError:
        return PlainLook

    def look(bound: Bound, digests: list[int], within: int) -> Look:
        kind = PlainLook if len(digests) < _FEW else VectorLook
        return kind(bound, digests, within)

    return look


@dataclass(slots=True, eq=False)
class Batch:
    """Items that Redis would be asked for in one call."""

    shard: int
    digests: list[int]


class Engine(Live):
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        super().__init__(config, store)
        self._adopts_shards = adopts_shards
        self._look = choose_look()

    def add(self, item: Item, within: int) -> bool:
        """Is the item new?"""
        key = digest(encode(item))
        store, shards = self.store, self.config.shards
        with store.guard:
            store.lock(exclusive=True)
            try:
                bound = self.at_hand(shard_of(key, shards) if shards > 1 else 0)
                new = None if bound is None else bound.add(key, within)
            finally:
                store.unlock()
        return finish(self.add_digests([key], within))[0] if new is None else new

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

    def contains(self, item: Item, within: int) -> bool:
        """Has the item been seen?"""
        key = digest(encode(item))
        store, shards = self.store, self.config.shards
        with store.guard:
            store.lock(exclusive=False)
            try:
                bound = self.at_hand(shard_of(key, shards) if shards > 1 else 0)
                if bound is not None:
                    return bound.holds(key, bound.hasher.offsets(key), within)
            finally:
                store.unlock()
        return finish(self.contains_many([key], within))[0]

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
            self.go_on_with(replace(self.config, shards=error.differences["shards"][0]))
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
        plan = self.plan_at(self.clock())
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
            text, begin = plan.layout(shard).text, 0
            digests = [key for batch in batches for key in batch.digests]
            look = self._look(self.bound(shard), digests, within)
            for batch in batches:
                if self.layout(shard, now) != text:  # an earlier batch has filled the part
                    waiting.add(batch)
                    continue
                bound = self.bound(shard)
                found, answered, full = self._take(bound, look, batch, begin)
                if len(found):
                    part = self.room_for(now, bound, shard, len(found))
                    part.count(len(found))
                    look.add(found, part)
                    new.update((batch.digests[number - begin], True) for number in found)
                begin += len(batch.digests)
                is_full = is_full or full
                if answered < len(batch.digests):
                    rest.append(Batch(shard, batch.digests[answered:]))
        if is_full:  # raised once all that there was room for is added
            raise FilterFull(self.config.name, self.config.capacity)
        return [batch for batch in pending if batch in waiting] + rest

    def _take(self, bound: Bound, look: Look, batch: Batch, begin: int) -> tuple[Any, int, bool]:
        """lua/add.lua: the new items, by their numbers from ``begin`` on; how many items have an answer now; and
        whether the next one finds the slice full."""
        answered, current = len(batch.digests), bound.current
        found = look.new(begin, begin + answered, current)
        grows, is_full = self.config.grow, False
        # There is always room for one, if the slice may grow.
        room = max(bound.size.capacity - (current.items if current else 0), 1 if grows else 0)
        if len(found) > room:
            answered, is_full = int(found[room]) - begin, not grows
            found = found[:room]
        hashes, words = bound.size.hashes, 0
        if len(found) * hashes * _WORDS_OF_BIT >= _MOST_WORDS:
            for place, number in enumerate(found):
                if words + _WORDS_OF_BIT * hashes >= _MOST_WORDS:
                    return found[:place], int(number) - begin, False
                offsets = bound.hasher.offsets(batch.digests[number - begin])
                zero = current.first_zero(offsets) if current else 0
                words += _WORDS_OF_BIT * (hashes - (zero or 0))
        return found, answered, is_full

    def _look_all(self, digests: list[int], within: int, seen: set[int]) -> Steps[None]:
        for shard, keys in by_shard(digests, self.config.shards).items():
            for some in chunks(keys, _LOOK_AT_ONCE):
                with self.store.guard:
                    self.store.lock(exclusive=False)
                    try:
                        self.prepare(self.clock(), [shard], store=False)
                        bound = self.bound(shard)
                        unseen = self._look(bound, list(some), within).new(0, len(some), None)
                    finally:
                        self.store.unlock()
                left = {some[number] for number in unseen}
                seen.update(key for key in some if key not in left)
                yield

    def _take_untold(self, digests: list[int]) -> dict[int, bool]:
        """Those of the items that are new, but whose caller was never told: they are the caller's now."""
        if not self.untold:
            return {}
        with self.store.guard:
            self.store.lock(exclusive=False)
            try:
                self.meet_epoch()
            finally:
                self.store.unlock()
            now, untold = self.clock(), self.untold
            return {key: True for key in digests if untold.pop(key, 0) > now}

    def _keep_untold(self, new: dict[int, bool]) -> None:
        now = self.clock()
        until = min(now + LANE_TTL_MS, self.plan_at(now).expires_at(0))
        self.untold.update(dict.fromkeys(new, until))
        while len(self.untold) > MOST_UNTOLD:
            del self.untold[next(iter(self.untold))]


def finish(steps: Steps[T]) -> T:
    """The answer, without pauses."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
