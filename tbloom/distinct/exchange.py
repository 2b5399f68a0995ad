"""One client's calls to one counter and its mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tbloom.distinct.config import (
    ALWAYS,
    MAX_MEMBERS,
    STORED_MAPPING,
    CounterConfig,
    mapping_differences,
)
from tbloom.engine.batches import MOVED, Batch
from tbloom.engine.buckets import BucketExchange, keys_of_halves, packed
from tbloom.engine.exchange import CLOCK_CHANGED, ServerClock
from tbloom.engine.flow import Flow, ScriptCall, Status, chunks, text
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.engine.tree import LAST_BUCKET, Tree
from tbloom.errors import ConfigMismatch, MappingFull, TBloomError
from tbloom.window import Slice

_ADD = Script("distinct/add")
_CLEAR = Script("distinct/clear")
_FORGET = Script("distinct/forget")

#: The ids of one chunk.
CHUNK = 1 << 16
#: A bucket with more entries is split. Redis keeps up to 512 in its compact form (a listpack).
_MAX_ENTRIES = 100
#: A new member takes the server some 8 us.
_MEMBERS_PER_CALL = 150
#: The known bitmaps that a call has in its keys at most: with one member, and with several. If it needs others, the reply
#: names them, and the call is made anew.
_MAX_BITMAPS, _MAX_BITMAPS_OF_MANY = 16, 1024
#: The answer of a member that may get no id.
_REFUSED = "3"


class _Known(NamedTuple):
    """What a batch's call was made from, the bitmaps that it lacked, and whether the mapping was full."""

    tree: Tree
    label: str
    bitmaps: frozenset[int] = frozenset()
    is_full: bool = False


class CountExchange(BucketExchange):
    """What a client knows of a counter and its mapping, and its calls."""

    def __init__(self, config: CounterConfig, max_members: int = MAX_MEMBERS) -> None:
        super().__init__(config.name, config.keys, config.mapping, "clear(mapping=True)")
        self.config = config
        self.clock = ServerClock()
        self._max_members = max_members
        #: The generation of the mapping, and its number of members.
        self._members: tuple[str, int] = ("", 0)
        #: A slice, and its chunks that are known to be bitmaps.
        self._bitmaps: tuple[str, frozenset[int]] = ("", frozenset())
        #: The current slice, and when it leaves the window (ms; 0: never).
        self._current: tuple[Slice, int] = (ALWAYS, 0)

    def ask(
        self,
        batches: list[Batch],
        call: Callable[[Batch], ScriptCall],
        *,
        store: bool | None = False,
    ) -> Flow[None]:
        """Sends the batches' calls; raises MappingFull once all members that have an id are counted."""
        yield from super().ask(batches, call, store=store)
        if any(_REFUSED in (batch.answers or "") for batch in batches):
            raise MappingFull(self.config.mapping, self._max_members)

    def batches(self, digests: Iterable[int]) -> list[Batch]:
        """The distinct digests, in batches for one call each."""
        return [Batch([*some]) for some in chunks([*dict.fromkeys(digests)], _MEMBERS_PER_CALL)]

    def add_call(self, batch: Batch) -> ScriptCall:
        """``lua/distinct/add.lua``; the batch has a token."""
        config, keys = self.config, self.config.keys
        tree, is_new = self._tree_to_change()
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
                *keys_of_halves(keys.ids(tree.generation), halves),
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
                _MAX_ENTRIES,
                LAST_BUCKET,
                self._max_members,
                packed(halves, batch.digests),
                *bitmaps,
            ),
        )

    def clear_call(self, batch: Batch, slices: dict[str, list[int]], *, last: bool) -> ScriptCall:
        """``lua/distinct/clear.lua``; the batch has a token, and no items.

        ``slices``: the chunks that are bitmaps, by slice; ``last``: these are the last slices.
        """
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
        """``lua/distinct/forget.lua``; the batch has a token, and no items."""
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

    def clear(self, *calls: Callable[[Batch], ScriptCall]) -> Flow[bool]:
        """Makes calls that clear something, together, with tokens. False: the server has refused one, because what is
        stored has changed."""
        batches = [Batch([]) for _ in calls]
        yield from self.change(batches, calls[0], asking=self._send_clears(batches, calls))
        return all(batch.answers is not None for batch in batches)

    def _send_clears(
        self, batches: list[Batch], calls: tuple[Callable[[Batch], ScriptCall], ...]
    ) -> Flow[None]:
        made = [call(batch) for call, batch in zip(calls, batches, strict=True)]
        yield from self._deliver(made, batches, self._accept_clear)

    def _accept_clear(self, batch: Batch, reply: Any) -> bool:
        status, payload, *more = reply
        if status in (Status.OK, Status.STRAY):  # a stray copy was executed before
            batch.answers = ""
        elif status not in (Status.LAYOUT, Status.IN_USE):
            raise refusal(batch.known, status, payload, *more)
        return True

    def forget(self) -> None:
        """The counter is cleared: no pending answer holds any more, and it has no bitmaps."""
        super().forget()
        self._bitmaps = ("", frozenset())

    def _lasts(self, batch: Batch) -> int:  # noqa: ARG002
        """How long (ms) the members that a batch has added are counted."""
        _, expires = self._current_slice()
        return expires - self.clock.now() if expires else LANE_TTL_MS

    def _current_slice(self) -> tuple[Slice, int]:
        """Kept, because computing when it leaves the window takes a step for each slice."""
        window, now = self.config.window, self.clock.now()
        slice, expires = self._current
        if window and not (expires and slice.start <= now < slice.end):
            slice = window.slice_at(now)
            expires = window.expires(slice)
            self._current = slice, expires
        return slice, expires

    def _known_of(self, batch: Batch) -> _Known:
        """What its call was made from, and the bitmaps that it lacked; without such, the layout must be read again."""
        known: _Known = batch.known
        if not known.bitmaps:
            self._outdated.add(batch.shard)
        return known

    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: the call must be made anew."""
        status, payload, *more = reply
        if status in (Status.OK, Status.FULL):
            batch.answers = self._answers(batch, payload, complete=True)
            # Those without an answer may have an id in another bucket, so they are sent once more.
            if status == Status.FULL and batch.known.is_full and {*batch.answers} == {MOVED}:
                batch.answers = _REFUSED * len(batch.digests)
            self._learn(batch, *more, is_full=status == Status.FULL)
            return True
        if status == Status.CLOCK:
            self.clock.learn(payload)
            self._change = CLOCK_CHANGED
            return False
        if status == Status.LAYOUT:
            self._outdated.add(batch.shard)
            return False
        raise refusal(self.config, status, payload, *more)

    def _learn(
        self, batch: Batch, splits: list[int], members: int, missing: list[int], *, is_full: bool
    ) -> None:
        """Notes what a reply says beside the answers."""
        known: _Known = batch.known
        known.tree.note_splits(splits)
        generation, most = self._members
        if generation != known.tree.generation:
            most = 0
        self._members = known.tree.generation, max(most, members)
        batch.known = known._replace(bitmaps=frozenset(missing), is_full=is_full)
        label, bitmaps = self._bitmaps
        bitmaps = batch.known.bitmaps | (bitmaps if label == known.label else frozenset())
        if len(bitmaps) > _MAX_BITMAPS_OF_MANY:  # too many to keep
            bitmaps = batch.known.bitmaps
        self._bitmaps = known.label, bitmaps

    def _bitmaps_for(self, label: str, batch: Batch) -> list[int]:
        """The chunks whose bitmaps the call may need: those of new ids, those that it lacked before, and the known ones,
        unless they are too many."""
        generation, members = self._members
        following = members // CHUNK if generation == self._tree().generation else 0
        needed = batch.known.bitmaps if batch.known else ()
        known = self._bitmaps[1] if self._bitmaps[0] == label else frozenset()
        if len(batch.digests) == 1 and len(known) > _MAX_BITMAPS:
            known = frozenset()
        return sorted({following, following + 1, *needed, *known})


def refusal(config: CounterConfig, status: int, payload: Any, *more: Any) -> TBloomError:
    """The error for a script's reply that no other call can mend; ``more`` is there if it is about the counter."""
    if status == Status.MISMATCH:
        stored = text(payload)
        if more:
            return ConfigMismatch(config.name, config.differences(stored), stored)
        return ConfigMismatch(config.mapping, mapping_differences(stored), stored)
    if status == Status.OTHER_IDS:
        return TBloomError(
            f"counter {config.name!r}: the server has lost the ids of the mapping {config.mapping!r} that it counts; "
            "clear() it (see warnings())"
        )
    if status == Status.DAMAGED:
        return TBloomError(
            f"counter {config.name!r}: key {text(payload)!r} holds what is not tbloom's, or the server has lost what it "
            f"held; clear() the counter, or clear(mapping=True) if the key is one of the mapping {config.mapping!r}"
        )
    return TBloomError(f"counter {config.name!r}: the server takes a call for a stray copy")
