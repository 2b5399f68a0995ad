"""One client's conversation with the server about one counter, until all members have answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tbloom.distinct.config import (
    ALWAYS,
    MOST_MEMBERS,
    STORED_MAPPING,
    CounterConfig,
    mapping_differences,
)
from tbloom.engine.batches import MOVED, Batch, PendingAnswers
from tbloom.engine.buckets import Bucketed
from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Flow, ScriptCall, Status, chunks, text
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.engine.tree import LAST_BUCKET, Tree, new_generation, read_tree
from tbloom.errors import ConfigMismatch, MappingFull, TBloomError
from tbloom.window import Slice

_ADD = Script("distinct/add")
_CLEAR = Script("distinct/clear")
_FORGET = Script("distinct/forget")

#: The ids of one chunk.
CHUNK = 1 << 16
#: A bucket with more entries is split. Redis keeps up to 512 in its compact form (a listpack).
_MOST_ENTRIES = 100
#: A new member takes the server some 8 us.
_MEMBERS_PER_CALL = 150
#: A call has the bitmaps that are known in its keys: up to so many with one member, or with several. Beyond that it is
#: told which it needs, and asked again.
_MOST_BITMAPS, _MOST_BITMAPS_OF_MANY = 16, 1024
#: What stands for the answer of a member that may get no id.
_REFUSED = "3"


class _Known(NamedTuple):
    """What a batch's call went by, the bitmaps that it turned out to need, and whether the mapping was full."""

    tree: Tree
    label: str
    bitmaps: frozenset[int] = frozenset()
    is_full: bool = False


class CountExchange(Bucketed):
    """What a client has learnt about a counter and its mapping, and its tokens."""

    def __init__(self, config: CounterConfig, max_members: int = MOST_MEMBERS) -> None:
        super().__init__(config.name)
        self.config = config
        self.clock = ServerClock()
        self._max_members = max_members
        self._tree = Tree("")
        self._is_outdated = False
        self._members = 0
        #: The chunks that are bitmaps, as far as known, and of which slice.
        self._bitmaps: tuple[str, frozenset[int]] = ("", frozenset())
        #: The current slice, and when it leaves the window (ms; 0: never).
        self._current: tuple[Slice, int] = (ALWAYS, 0)

    def ask(self, batches: list[Batch], call: Callable[[Batch], ScriptCall]) -> Flow[None]:
        """As of all stores with buckets; a mapping that is full is told of once all members that it has are counted."""
        yield from super().ask(batches, call)
        if any(_REFUSED in (batch.answers or "") for batch in batches):
            raise MappingFull(self.config.mapping, self._max_members)

    def batches(self, digests: Iterable[int]) -> list[Batch]:
        """The distinct digests, in batches of what one call may carry."""
        return [Batch([*some]) for some in chunks([*dict.fromkeys(digests)], _MEMBERS_PER_CALL)]

    def add_call(self, batch: Batch) -> ScriptCall:
        """``lua/distinct_add.lua``; the batch has a lane."""
        config, keys = self.config, self.config.keys
        tree, is_new = self._tree, False
        if not tree.generation:
            tree = self._tree = Tree(new_generation())
            is_new = True
        current, expires = self._current_slice()
        halves = [*map(tree.half_of, batch.digests)]
        bitmaps = self._bitmaps_for(current.label, batch)
        known = batch.known or _Known(tree, current.label)
        batch.known = known._replace(tree=tree, label=current.label)
        return ScriptCall(
            _ADD,
            (
                self._lane(batch),
                keys.config(),
                keys.layout(),
                keys.members(),
                keys.counters(),
                keys.directory(config.name, current.label),
                *self._buckets(tree, halves),
                *(keys.bitmap(config.name, current.label, chunk) for chunk in bitmaps),
            ),
            (
                batch.number,
                STORED_MAPPING,
                config.name,
                config.stored,
                tree.generation,
                int(is_new),
                current.start,
                current.end,
                expires,
                LANE_TTL_MS,
                _MOST_ENTRIES,
                LAST_BUCKET,
                self._max_members,
                len(halves),
                *(
                    word
                    for half, digest in zip(halves, batch.digests, strict=True)
                    for word in (half, digest.to_bytes(16, "big"))
                ),
                *bitmaps,
            ),
        )

    def clear_call(self, batch: Batch, slices: dict[str, list[int]], *, last: bool) -> ScriptCall:
        """``lua/distinct_clear.lua``; the batch has a lane, and no items. The chunks that are bitmaps, by slice;
        and whether these are the last slices."""
        config, keys = self.config, self.config.keys
        batch.known = config
        return ScriptCall(
            _CLEAR,
            (
                self._lane(batch),
                keys.config(),
                keys.counters(),
                *(keys.directory(config.name, label) for label in slices),
                *(
                    keys.bitmap(config.name, label, chunk)
                    for label, bitmaps in slices.items()
                    for chunk in bitmaps
                ),
            ),
            (
                batch.number,
                STORED_MAPPING,
                config.name,
                config.stored,
                LANE_TTL_MS,
                int(last),
                len(slices),
                *map(len, slices.values()),
                *(chunk for bitmaps in slices.values() for chunk in bitmaps),
            ),
        )

    def forget_call(self, batch: Batch) -> ScriptCall:
        """``lua/distinct_forget.lua``; the batch has a lane, and no items."""
        keys = self.config.keys
        batch.known = self.config
        return ScriptCall(
            _FORGET,
            (
                self._lane(batch),
                keys.config(),
                keys.layout(),
                keys.members(),
                keys.counters(),
                keys.forgotten(),
            ),
            (batch.number, STORED_MAPPING, LANE_TTL_MS),
        )

    def tell(self, *calls: Callable[[Batch], ScriptCall]) -> Flow[bool]:
        """Makes calls with tokens and without members, together. False: what one of them goes by has changed."""
        batches = [Batch([]) for _ in calls]
        yield from self.settle(batches, self._tell(batches, calls))
        return all(batch.answers is not None for batch in batches)

    def _tell(
        self, batches: list[Batch], calls: tuple[Callable[[Batch], ScriptCall], ...]
    ) -> Flow[None]:
        made = [call(batch) for call, batch in zip(calls, batches, strict=True)]
        yield from self._deliver(made, batches, self._accept_told)

    def _accept_told(self, batch: Batch, reply: Any) -> bool:
        status, payload, *more = reply
        if status in (Status.OK, Status.STRAY):  # a clear that was done already
            batch.answers = ""
        elif status != Status.LAYOUT:
            raise refusal(batch.known, status, payload, *more)
        return True

    def forget(self) -> None:
        """The counter is cleared: no first answer holds any more."""
        self.pending_answers, self._bitmaps = PendingAnswers(), ("", frozenset())

    def _lane(self, batch: Batch) -> str:
        lane = batch.lane
        assert lane is not None  # noqa: S101 - it was given a token
        return self.config.keys.lane(lane.client, lane.lane)

    def _refresh(self, batches: list[Batch]) -> Flow[None]:
        if batches and self._is_outdated:
            self._is_outdated = False
            tree = yield from read_tree(
                self.config.mapping, self.config.keys.layout(), "clear(mapping=True)"
            )
            if tree.generation != self._tree.generation:
                self._members = 0
            self._tree = tree

    def _current_slice(self) -> tuple[Slice, int]:
        """To find out when it leaves the window takes a step for each slice, so that is kept."""
        window, now = self.config.window, self.clock.now()
        slice, expires = self._current
        if window and not (expires and slice.start <= now < slice.end):
            slice = window.slice_at(now)
            expires = window.expires(slice)
            self._current = slice, expires
        return slice, expires

    def _moved(self, batch: Batch) -> _Known:
        known: _Known = batch.known
        if not known.bitmaps:
            self._is_outdated = True
        return known

    def _accept(self, batch: Batch, reply: Any) -> bool:
        status, payload, *more = reply
        if status in (Status.OK, Status.FULL):
            batch.answers = self._answers(batch, payload, all_of_them=True)
            # Those without an answer may have an id elsewhere, so they are asked for once more.
            if status == Status.FULL and batch.known.is_full and {*batch.answers} == {MOVED}:
                batch.answers = _REFUSED * len(batch.digests)
            self._learn(batch, *more, is_full=status == Status.FULL)
            return True
        if status == Status.CLOCK:
            self.clock.learn(payload)
            self._changing = "the server's clock left the current slice"
            return False
        if status == Status.LAYOUT:
            self._is_outdated = True
            return False
        raise refusal(self.config, status, payload, *more)

    def _learn(
        self, batch: Batch, splits: list[int], members: int, missing: list[int], *, is_full: bool
    ) -> None:
        """Takes what a call has found beside the answers."""
        known: _Known = batch.known
        known.tree.note_splits(splits)
        self._members = max(self._members, members)
        batch.known = known._replace(bitmaps=frozenset(missing), is_full=is_full)
        label, bitmaps = self._bitmaps
        bitmaps = batch.known.bitmaps | (bitmaps if label == known.label else frozenset())
        if len(bitmaps) > _MOST_BITMAPS_OF_MANY:  # begins anew
            bitmaps = batch.known.bitmaps
        self._bitmaps = known.label, bitmaps

    def _bitmaps_for(self, label: str, batch: Batch) -> list[int]:
        """The chunks whose bitmaps the call may need: those where new ids go, those that it turned out to need,
        and those that are known, unless they are many."""
        following = self._members // CHUNK
        needed = batch.known.bitmaps if batch.known else ()
        known = self._bitmaps[1] if self._bitmaps[0] == label else frozenset()
        if len(batch.digests) == 1 and len(known) > _MOST_BITMAPS:
            known = frozenset()
        return sorted({following, following + 1, *needed, *known})

    def _buckets(self, tree: Tree, halves: list[int]) -> Iterator[str]:
        """For each member, its bucket and that one's halves."""
        key, generation = self.config.keys.ids, tree.generation
        for half in halves:
            yield key(generation, half >> 1)
            yield key(generation, half & ~1)
            yield key(generation, half | 1)


def refusal(config: CounterConfig, status: int, payload: Any, *more: Any) -> TBloomError:
    """What a script's reply says that no further question mends; ``more`` is there if it is about the counter."""
    if status == Status.MISMATCH:
        stored = text(payload)
        if more:
            return ConfigMismatch(config.name, config.differences(stored), stored)
        return ConfigMismatch(config.mapping, mapping_differences(stored), stored)
    if status == Status.FOREIGN:
        lost = f"the server has lost the ids of the mapping {config.mapping!r}"
        if text(payload):  # there are others since
            return TBloomError(
                f"counter {config.name!r}: {lost} that it counts; clear() it (see warnings())"
            )
        return TBloomError(
            f"counter {config.name!r}: {lost}; clear(mapping=True) it (see warnings())"
        )
    if status == Status.DAMAGED:
        return TBloomError(
            f"counter {config.name!r}: key {text(payload)!r} holds what is not tbloom's, or the server has lost what it "
            "held; clear() the counter, or the mapping where it is one of that's keys"
        )
    return TBloomError(f"counter {config.name!r}: the server takes a call for a stray copy")
