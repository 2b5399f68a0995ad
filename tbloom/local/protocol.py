"""The verbs of a filter without a server.

Items that are asked one call after another get the answers of a filter on Redis, false positives included. A call
with many items is cut into looks, each under the store's lock: first all items of a look are compared with what
is stored, then the new ones are added. Where these fill the current part, those that are left are looked at again,
with a further part. The verbs are generators that yield between two looks, so that other threads, tasks and processes
get their turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from tbloom.bloom.config import Config
from tbloom.bloom.hasher import by_shard, digest, digests_of
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.batches import in_order
from tbloom.engine.flow import chunks
from tbloom.errors import FilterFull
from tbloom.items import Item, check_items, check_within
from tbloom.local.live import Live
from tbloom.local.memory import Store
from tbloom.local.shard import Look, PlainLook, Shard
from tbloom.window import Period

T = TypeVar("T")
Steps = Generator[None, None, T]
#: Items of one look, with their shard.
Batch = tuple[int, list[bytes]]

#: Items that are looked at under one lock.
_LOOK_AT_ONCE = 2500
#: Items that are hashed without a pause.
_HASHED_AT_ONCE = 10_000
#: Fewer items are not worth numpy's calls.
_MIN_VECTOR = 8


def choose_look() -> Callable[[Shard, list[bytes], int], Look]:
    """How items are looked at: together, where numpy is installed and there are enough of them."""
    try:
        from tbloom.local.vectors import VectorLook  # noqa: PLC0415 - numpy is optional
    except ImportError:
        return PlainLook

    def look(shard: Shard, digests: list[bytes], within: int) -> Look:
        kind = PlainLook if len(digests) < _MIN_VECTOR else VectorLook
        return kind(shard, digests, within)

    return look


class Added(NamedTuple):
    """How an item was added, in case the answer does not reach the client."""

    #: The store's era then.
    era: tuple[int, int]
    #: When the item is forgotten (ms).
    until: int


class Protocol(Live):
    """One filter, in one store."""

    def __init__(self, config: Config, store: Store, *, adopts_shards: bool) -> None:
        super().__init__(config, store, adopts_shards=adopts_shards)
        self._look = choose_look()

    def add(self, item: Item, within: int | None) -> bool:
        """Adds the item; True: it is new."""
        key, slices = digest(item), self.config.slices
        within = slices if within is None else check_within(within, slices)
        with self.store.guard, self.store.exclusive:
            pending = self.pending_answers
            shard = None if pending.exist and key in pending else self.at_hand(key)
            new = None if shard is None else shard.add(key, within)
        return finish(self._add_digests([key], within))[0] if new is None else new

    def add_many(self, items: Iterable[Item], within: int | None) -> Steps[list[bool]]:
        """Adds the items; True for each new one, at its first place in the call."""
        within = check_within(within, self.config.slices)
        return (yield from self._add_digests((yield from _digests_of(items)), within))

    def contains(self, item: Item, within: int | None) -> bool:
        """True: the item has been seen."""
        key, slices = digest(item), self.config.slices
        within = slices if within is None else check_within(within, slices)
        with self.store.guard, self.store.shared:
            shard = self.at_hand(key)
            if shard is not None:
                return shard.look(key, within) is None
        return finish(self._find([key], within))[0]

    def contains_many(self, items: Iterable[Item], within: int | None) -> Steps[list[bool]]:
        """True for each item that has been seen."""
        within = check_within(within, self.config.slices)
        return (yield from self._find((yield from _digests_of(items)), within))

    def last_seen_many(self, items: Iterable[Item]) -> Steps[list[Period | None]]:
        """The newest live slice that holds each of the items."""
        digests, found = (yield from _digests_of(items)), dict[bytes, Period | None]()

        def visit(current: SliceCalls, shard: Shard, batch: list[bytes]) -> None:
            periods = [*map(self.config.window.period, current.slices), None]
            within = range(1, len(periods))
            for key in batch:
                # What the newest slices hold, more of them hold too.
                newer = bisect_left(within, x=True, key=lambda n: shard.look(key, n) is None)
                found[key] = periods[newer]

        yield from self._visit(digests, visit)
        return [found[key] for key in digests]

    def clear(self) -> None:
        """Forgets everything."""
        with self.store.guard, self.store.exclusive:
            self.store.save(self.store.contents.cleared())

    def close(self) -> None:
        """Releases what the store holds."""
        with self.store.guard:
            self.store.close()
            self.use(self.config)  # drops views of what is closed

    def _add_digests(self, digests: list[bytes], within: int) -> Steps[list[bool]]:
        pending, new = self.pending_answers, dict[bytes, Added]()
        if pending.exist:
            with self.store.guard, self.store.shared:
                self.drop_stale_answers()
            pending.check_room(self.config.name, digests)
        try:
            yield from self._add_new(digests, within, new)
            answers = dict.fromkeys(new, True) | pending.take_new(digests)
            return in_order(answers, digests)
        except BaseException:  # GeneratorExit too, where a task was cancelled
            self._keep_pending(new)
            raise

    def _add_new(self, digests: list[bytes], within: int, new: dict[bytes, Added]) -> Steps[None]:
        """Adds the items, and puts the new ones into ``new``."""
        config, waiting = None, [(0, digests)]
        while waiting:
            with self.store.guard, self.store.exclusive:
                now = self.agree()
                if (
                    config is not self.config
                ):  # at first, and where the stored filter's shards are adopted
                    config, waiting = self.config, self._batches(waiting)
                if waiting:
                    shard, batch = waiting.pop()
                    rest = self._add_batch(now, shard, batch, within, new)
                    if rest:
                        waiting.append((shard, rest))
            yield

    def _add_batch(
        self, now: int, number: int, digests: list[bytes], within: int, new: dict[bytes, Added]
    ) -> list[bytes]:
        """Adds the items that the current part has room for; returns those that are left."""
        current = self.prepare(now, number, begins=True)
        shard = self.shard(number)
        look = self._look(shard, digests, within)
        room = shard.size.capacity - (shard.current.items if shard.current else 0)
        if self.config.grow:
            room = max(room, 1)  # a full part without a successor gets one
        count = min(len(look.new), max(room, 0))
        if count:
            part = self.part_for(now, shard, number, count)
            part.count[0] += count
            added = Added(self.era, current.expires_at(0))
            # Before their bits: an item that waits for its caller is added again when that asks, but no other is.
            new.update(dict.fromkeys([digests[place] for place in look.new[:count]], added))
            look.add(count, part)
        if count == len(look.new):
            return []
        if not self.config.grow:
            raise FilterFull(self.config.name, self.config.capacity)
        return digests[look.new[count] :]

    def _find(self, digests: list[bytes], within: int) -> Steps[list[bool]]:
        unseen = set[bytes]()

        def visit(_: SliceCalls, shard: Shard, batch: list[bytes]) -> None:
            look = self._look(shard, batch, within)
            unseen.update(batch[place] for place in look.new)

        yield from self._visit(digests, visit)
        return [key not in unseen for key in digests]

    def _visit(
        self, digests: list[bytes], visit: Callable[[SliceCalls, Shard, list[bytes]], None]
    ) -> Steps[None]:
        """Looks at the items in their shards, many under one lock."""
        config, waiting = None, [(0, digests)]
        while waiting:
            with self.store.guard, self.store.shared:
                now = self.agree()
                if config is not self.config:  # see _add_new
                    config, waiting = self.config, self._batches(waiting)
                if waiting:
                    number, batch = waiting.pop()
                    current = self.prepare(now, number, begins=False)
                    visit(current, self.shard(number), batch)
            yield

    def _batches(self, waiting: list[Batch]) -> list[Batch]:
        """The distinct items by shard, in looks; the first one comes last."""
        keys = chain.from_iterable(batch for _, batch in reversed(waiting))
        return [
            (shard, list(batch))
            for shard, own in by_shard(keys, self.config.shards).items()
            for batch in chunks(own, _LOOK_AT_ONCE)
        ][::-1]

    def _keep_pending(self, new: dict[bytes, Added]) -> None:
        """Keeps the answers of a call that ended in an error, for the next one that asks. Takes no lock: the garbage
        collector may run it anywhere, as the end of a task that is not awaited."""
        for added in set(new.values()):
            if added.era == self.era:
                some = [key for key, how in new.items() if how == added]
                self.pending_answers.keep_new(some, max(0, added.until - self.clock()))


def _digests_of(items: Iterable[Item]) -> Steps[list[bytes]]:
    """The items' digests, in order."""
    rest, digests = iter(check_items(items)), list[bytes]()
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
