"""One client's conversation with the server about one exact filter, until all items have answers."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tbloom import scripts
from tbloom.batches import MOVED, Batch, Untold
from tbloom.calls import CALLS_AT_ONCE, Command, Flow, ScriptCall, Status, chunks, deliver, text
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.exact.config import ExactConfig
from tbloom.exact.tree import BITS, Tree
from tbloom.exchange import Exchange
from tbloom.hashing import by_shard
from tbloom.lanes import LANE_TTL_MS

#: A bucket with more entries is split. Redis keeps up to 128 in its compact form (a listpack); the fewer they are,
#: the faster they are searched, and the more memory the keys take.
_MOST_ENTRIES = 80
#: A new item takes the server some 9 us.
_ITEMS_PER_CALL = 150
#: How many buckets a call sweeps beside its own, at least and at most; and at most one more for each item.
#: A bucket takes the server from 1 us (nothing is dead) to 13 us (nearly all are).
_LEAST_SWEEP, _MOST_SWEEP = 1, 64
#: With a larger part dead of what was swept, the next call sweeps twice as many buckets.
_MANY_DEAD = 0.05
#: And where fewer entries are left in what was swept: who looks at ten for each that he adds has looked at all by
#: the time that a tenth of them can have died.
_LEAST_LEFT = 12
#: Buckets are split while a call is under way, and a clear() may come between. More often, without any
#: answer, means that something else changes the layout.
_MAX_CORRECTIONS = 16
#: Who only looks compares the parameters again after so many seconds.
_LOOK_SECONDS = 60.0
#: The layout begins with the generation, so many digits; its bits are read so many words at a time.
_GENERATION, _WORDS = 16, 1000
#: Buckets are split up to this number, so that items made to be in one bucket can't make the layout larger.
_LAST_BUCKET = 1 << 26
_LONGEST = _GENERATION + _LAST_BUCKET // 8

_CallFor = Callable[[Batch], ScriptCall]


class _Shard:
    """What is known of a shard: its buckets, and how far they are swept."""

    __slots__ = ("cursor", "sweep", "tree")

    def __init__(self) -> None:
        self.tree = Tree("")
        self.cursor = random.getrandbits(BITS)
        self.sweep = _LEAST_SWEEP

    def next_sweep(self, tree: Tree, items: int) -> list[int]:
        """The buckets that the next call, with so many items, sweeps."""
        buckets: dict[int, None] = {}
        for _ in range(min(self.sweep, _MOST_SWEEP + items)):
            bucket, self.cursor = tree.bucket_after(self.cursor)
            if bucket in buckets:  # that is all of them
                break
            buckets[bucket] = None
        return [*buckets]

    def note_dead(self, dead: int, left: int) -> None:
        """Of the entries of the buckets that a call has swept, so many were dead, and so many are left."""
        if dead > _MANY_DEAD * left or left < _LEAST_LEFT:
            self.sweep = min(2 * self.sweep, _MOST_SWEEP + _ITEMS_PER_CALL)
        elif left >= 4 * _LEAST_LEFT and self.sweep > _LEAST_SWEEP:
            self.sweep //= 2


class ExactConversation(Exchange):
    """What a client has learnt about an exact filter, and its tokens."""

    def __init__(self, config: ExactConfig) -> None:
        super().__init__(config.name)
        self.config = config
        self._shards: dict[int, _Shard] = {}
        #: Until when (``time.monotonic``) the parameters are known to be stored for items of which life (ms).
        self._agreed: tuple[float, int] = (0.0, 0)
        #: The shards whose layout must be read before they are asked again.
        self._outdated: set[int] = set()

    def batches(self, digests: Iterable[int], ttl: int = 0) -> list[Batch]:
        """The distinct digests, by shard, in batches of what one call may carry."""
        return [
            Batch(list(some), shard, ttl=ttl)
            for shard, keys in by_shard(digests, self.config.shards).items()
            for some in chunks(keys, _ITEMS_PER_CALL)
        ]

    def change(self, batches: list[Batch], call: _CallFor) -> Flow[None]:
        """Asks with tokens, and notes whose answers got lost."""
        yield from self.settle(batches, self.ask(batches, call))

    def ask(self, batches: list[Batch], call: _CallFor) -> Flow[None]:
        """Sends the batches' calls until each item has its answer."""
        for some in chunks(list(batches), CALLS_AT_ONCE):  # batches gets more meanwhile
            pending, corrections = list(some), 0
            while pending:
                if corrections > _MAX_CORRECTIONS:
                    raise TBloomError(
                        f"filter {self.config.name!r}: its layout changed {_MAX_CORRECTIONS} times in a row"
                    )
                corrections += 1
                if self.config.shards > 1:  # a single shard's script compares them itself
                    yield from self._agree(pending)
                calls = [call(batch) for batch in pending]
                answered = yield from self._deliver(calls, pending, self._accept)
                rest = self._left_over(answered)
                if _items_of(rest) < _items_of(answered):  # so some have their answers
                    corrections = 0
                batches += rest
                pending = [batch for batch in pending if batch not in answered] + rest
                for shard in self._outdated.intersection(batch.shard for batch in pending):
                    self._outdated.discard(shard)
                    self._shard(shard).tree = yield from read_tree(self.config, shard)

    def _agree(self, batches: list[Batch]) -> Flow[None]:
        """Compares the parameters where they are found by name, if that is due; if items are to be added,
        has them stored for longer than the items live that are added until this is due again."""
        ttl = max(batch.ttl for batch in batches)
        until, longest = self._agreed
        is_asked_for = any(batch.agreed for batch in batches)
        if time.monotonic() < until and ttl <= longest and not is_asked_for:
            return
        config = self.config
        call = ScriptCall(scripts.EXACT_OPEN, (config.keys.root,), (config.stored, ttl))
        yield from self._deliver([call], [Batch([])], self._accept)
        self._agreed = time.monotonic() + (ttl / 2000 or _LOOK_SECONDS), ttl
        for batch in batches:
            batch.agreed = True

    def _left_over(self, batches: list[Batch]) -> list[Batch]:
        """New batches of the items whose buckets were others than this client knew."""
        rest = []
        for batch in batches:
            answers = batch.answers or ""
            if MOVED in answers:
                self._outdated.add(batch.shard)
                pairs = zip(batch.digests, answers, strict=True)
                rest += self._rest_of(batch, [key for key, answer in pairs if answer == MOVED])
        return rest

    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: to be asked again."""
        status, payload, *more = reply
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload, all_of_them=True)
                self._learn(batch, *more)
            return True
        if status == Status.LAYOUT:
            self._outdated.add(batch.shard)
            return False
        if status == Status.MISMATCH:
            stored = text(payload)
            raise ConfigMismatch(self.config.name, self.config.differences(stored), stored)
        if status == Status.UNKNOWN:
            self._agreed, batch.agreed = (0.0, 0), True
            shard = self._shard(batch.shard)
            if shard.tree is batch.known:  # what was proposed is not known to the server
                shard.tree = Tree("")
            return False
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def _learn(self, batch: Batch, splits: list[int], *swept: int) -> None:
        """Takes what a call has found beside the answers."""
        batch.known.note_splits(splits)
        if swept:
            self._shard(batch.shard).note_dead(*swept)

    def forget(self) -> None:
        """The filter is cleared: parameters are to be agreed on anew, and no first answer holds any more."""
        self._agreed, self.untold = (0.0, 0), Untold()

    def _shard(self, shard: int) -> _Shard:
        known = self._shards.get(shard)
        return self._shards.setdefault(shard, _Shard()) if known is None else known

    def add_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_add.lua``; the batch has a lane."""
        keys, shard = self.config.keys, self._shard(batch.shard)
        tree, is_new = shard.tree, False
        if not tree.generation:
            # Proposed by this call only: if there is a clear() meanwhile, what was before must not come back.
            tree = shard.tree = Tree(f"{time.time_ns() // 1000:0{_GENERATION}}")
            is_new = True
        batch.known, halves = tree, [*map(tree.half_of, batch.digests)]
        swept = shard.next_sweep(tree, len(halves))
        return ScriptCall(
            scripts.EXACT_ADD,
            (
                self._lane(batch),
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self._keys(batch.shard, tree, halves),
                *(keys.bucket(tree.generation, bucket, batch.shard) for bucket in swept),
            ),
            (
                batch.number,
                self.config.stored,
                self._is_agreed(batch),
                tree.generation,
                batch.ttl,
                LANE_TTL_MS,
                _MOST_ENTRIES,
                _LAST_BUCKET,
                int(is_new),
                len(halves),
                *_items(halves, batch.digests),
                *swept,
            ),
        )

    def contains_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_contains.lua``."""
        keys, tree = self.config.keys, self._shard(batch.shard).tree
        batch.known, halves = tree, [*map(tree.half_of, batch.digests)]
        return ScriptCall(
            scripts.EXACT_CONTAINS,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self._keys(batch.shard, tree, halves),
            ),
            (
                self.config.stored,
                self._is_agreed(batch),
                tree.generation,
                *_items(halves, batch.digests),
            ),
        )

    def clear_call(self, batch: Batch) -> ScriptCall:
        """``lua/exact_clear.lua``; the batch has a lane, and no items."""
        keys = self.config.keys
        return ScriptCall(
            scripts.EXACT_CLEAR,
            (self._lane(batch), keys.config(batch.shard), keys.layout(batch.shard)),
            (batch.number, self.config.stored, LANE_TTL_MS),
        )

    def _keys(self, shard: int, tree: Tree, halves: list[int]) -> Iterator[str]:
        """For each item, its bucket and that one's halves."""
        key, generation = self.config.keys.bucket, tree.generation
        for half in halves:
            yield key(generation, half >> 1, shard)
            yield key(generation, half & ~1, shard)
            yield key(generation, half | 1, shard)

    def _lane(self, batch: Batch) -> str:
        lane = batch.lane
        assert lane is not None  # noqa: S101 - it was given a token
        return self.config.keys.lane(lane.client, lane.lane, batch.shard)

    def _is_agreed(self, batch: Batch) -> int:
        return int(batch.agreed or self.config.shards == 1)


def _items_of(batches: list[Batch]) -> int:
    return sum(len(batch.digests) for batch in batches)


def _items(halves: list[int], digests: list[int]) -> Iterator[Any]:
    for half, digest in zip(halves, digests, strict=True):
        yield half
        yield digest.to_bytes(16, "big")


def read_tree(config: ExactConfig, shard: int) -> Flow[Tree]:
    """The buckets that a shard has; without a generation where there are none."""
    key = config.keys.layout(shard)
    commands = [Command(("GETRANGE", key, 0, _GENERATION - 1)), Command(("STRLEN", key))]
    generation, size = yield from deliver(commands)
    generation = text(generation)
    if not generation:
        return Tree("")
    if not re.fullmatch(rf"[0-9]{{{_GENERATION}}}", generation) or size > _LONGEST:
        raise TBloomError(
            f"filter {config.name!r}: key {key!r} holds {generation!r}..., which is not a layout of "
            "tbloom's; clear() the filter"
        )
    # As numbers: a client with decode_responses could not read them otherwise.
    words = [f"#{i}" for i in range(_GENERATION // 8, -(-size // 8))]
    calls = [
        Command(("BITFIELD_RO", key, *(term for word in some for term in ("GET", "i64", word))))
        for some in chunks(words, _WORDS)
    ]
    read: list[int] = []
    for some in chunks(calls, CALLS_AT_ONCE):
        for reply in (yield from deliver(some)):
            read += reply
    return Tree(generation, b"".join(word.to_bytes(8, "big", signed=True) for word in read))
