"""The verbs of a filter without a server: what ``conversation`` and the Lua scripts do together.

The answers are the same as those of a filter on Redis that is asked the same, false positives
included, so batches are cut as there: no item of a batch sees the bits of another one, a part that
becomes full leaves the rest of its batch for later, after the other batches that are under way.

Each round of batches is one locked look at the store. The verbs are generators that yield between
rounds, so that other threads, tasks and processes get their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from tbloom.bloom.config import Config
from tbloom.bloom.exchange import items_per_call
from tbloom.engine.batches import Batch, cut
from tbloom.engine.flow import CALLS_AT_ONCE, chunks
from tbloom.engine.keys import by_shard
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import FilterFull
from tbloom.items import Item, check_items, digest, digests_of, encode
from tbloom.local.bound import Bound, Look, PlainLook
from tbloom.local.live import Live
from tbloom.local.memory import Store

T = TypeVar("T")
Steps = Generator[None, None, T]

#: lua/shared/parts.lua's can_note: what one command of Redis carries, in words, of which a bit takes 4.
_MOST_WORDS, _WORDS_OF_BIT = 7900, 4
#: Items that are looked at under one lock.
_LOOK_AT_ONCE = 2500
#: Items that are hashed without a pause.
_HASHED_AT_ONCE = 10_000
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


class Told(NamedTuple):
    """What was so when an item was found to be new, in case that its caller is never told."""

    era: tuple[int, int]
    #: Until when (ms) the item is remembered.
    until: int


class Engine(Live):
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        super().__init__(config, store, adopts_shards=adopts_shards)
        self._look = choose_look()

    def add(self, item: Item, within: int) -> bool:
        """Is the item new?"""
        key = digest(encode(item))
        with self.store.guard, self.unlocked, self.exclusive:
            bound = None if key in self.pending_answers else self.at_hand(key)
            new = None if bound is None else bound.add(key, within)
        return finish(self._add_digests([key], within))[0] if new is None else new

    def add_many(self, items: Iterable[Item], within: int) -> Steps[list[bool]]:
        """Which of the items are new? Of a repeated one, the first."""
        return (yield from self._add_digests((yield from _digests_of(items)), within))

    def contains(self, item: Item, within: int) -> bool:
        """Has the item been seen?"""
        key = digest(encode(item))
        with self.store.guard, self.unlocked, self.shared:
            bound = self.at_hand(key)
            if bound is not None:
                return bound.holds(key, bound.hasher.offsets(key), within)
        return finish(self._look_all([key], within))[0]

    def contains_many(self, items: Iterable[Item], within: int) -> Steps[list[bool]]:
        """Which of the items have been seen?"""
        return (yield from self._look_all((yield from _digests_of(items)), within))

    def clear(self) -> None:
        """Forgets everything."""
        with self.store.guard, self.unlocked, self.exclusive:
            self.store.save(self.store.contents.cleared())

    def _add_digests(self, digests: list[int], within: int) -> Steps[list[bool]]:
        new = self._take_untold(digests)
        asked = [key for key in digests if key not in new] if new else digests
        try:
            yield from self._add_all(asked, within, new)
        except BaseException:  # the steps' end too, when a task was cancelled
            self._keep_untold(new)
            raise
        # Popped by its first occurrence, so that the others are told "seen".
        return [new.pop(key, None) is not None for key in digests]

    def _add_all(self, digests: list[int], within: int, new: dict[int, Told]) -> Steps[None]:
        config, left, pending = None, [Batch(digests)], list[Batch]()
        while left or pending:
            with self.store.guard, self.unlocked, self.exclusive:
                now = self.agree()
                # At first, and whenever the stored filter's shards are taken over.
                if config is not self.config:
                    config = self.config
                    keys = [key for batch in pending + left for key in batch.digests]
                    left, pending = self._batches(now, keys), []
                if not pending:
                    pending, left = left[:CALLS_AT_ONCE], left[CALLS_AT_ONCE:]
                pending = self._add_round(now, pending, within, new)
            yield

    def _batches(self, now: int, digests: list[int]) -> list[Batch]:
        """What Redis would be asked for in one call each."""
        plan = self.plan_at(now)
        return [
            Batch(list(some), shard)
            for shard, keys in by_shard(digests, self.config.shards).items()
            for some in chunks(keys, items_per_call(self.config, plan.shard(shard)))
        ]

    def _add_round(
        self, now: int, pending: list[Batch], within: int, new: dict[int, Told]
    ) -> list[Batch]:
        """Adds the items of each batch; returns those that have to wait for another layout, and what is left over."""
        shards: dict[int, list[Batch]] = {}
        for batch in pending:
            shards.setdefault(batch.shard, []).append(batch)
        plan = self.prepare(now, shards, store=True)
        told = Told(self.era, plan.expires_at(0))
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
                    part.raise_count(len(found))
                    look.add(found, part)
                    new.update((batch.digests[number - begin], told) for number in found)
                begin += len(batch.digests)
                is_full = is_full or full
                if answered < len(batch.digests):
                    rest.append(Batch(batch.digests[answered:], shard))
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

    def _look_all(self, digests: list[int], within: int) -> Steps[list[bool]]:
        unseen, config, left = set[int](), None, [Batch(digests)]
        while left:
            with self.store.guard, self.unlocked, self.shared:
                now = self.agree()
                if config is not self.config:  # see _add_all
                    config = self.config
                    keys = [key for batch in left for key in batch.digests]
                    left = [
                        Batch(list(some), shard)
                        for shard, own in by_shard(keys, config.shards).items()
                        for some in chunks(own, _LOOK_AT_ONCE)
                    ][::-1]
                if left:
                    batch = left.pop()
                    self.prepare(now, [batch.shard], store=False)
                    look = self._look(self.bound(batch.shard), batch.digests, within)
                    unseen.update(
                        batch.digests[number] for number in look.new(0, len(batch.digests), None)
                    )
            yield
        return [key not in unseen for key in digests]

    def _take_untold(self, digests: list[int]) -> dict[int, Told]:
        """Those of the items that are new, but whose caller was never told: they are the caller's now."""
        if not self.pending_answers or self.pending_answers.keys().isdisjoint(digests):
            return {}
        with self.store.guard, self.unlocked, self.shared:
            self.meet_era()
            now, untold, era = self.clock(), self.pending_answers, self.era
            return {key: Told(era, until) for key in digests if (until := untold.pop(key, 0)) > now}

    def _keep_untold(self, new: dict[int, Told]) -> None:
        """Notes new items whose caller is not told, for whoever asks next. Takes no lock: it may run wherever garbage
        is collected, as the end of a task that nobody waits for."""
        now, untold = self.clock(), self.pending_answers
        for key, until in list(untold.items()):
            if until <= now:
                untold.pop(key, None)
        for key, told in new.items():
            if told.era == self.era:
                untold[key] = min(now + LANE_TTL_MS, told.until)
        cut(untold)


def _digests_of(items: Iterable[Item]) -> Steps[list[int]]:
    """The items' digests, in order."""
    rest, digests = iter(check_items(items)), list[int]()
    while some := list(islice(rest, _HASHED_AT_ONCE)):
        if digests:
            yield
        digests += digests_of(some, first=len(digests))
    return digests


def finish(steps: Steps[T]) -> T:
    """The answer, without pauses."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
