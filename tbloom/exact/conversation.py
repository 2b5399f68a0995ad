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
#: An item takes the server some 6 us.
_ITEMS_PER_CALL = 150
#: How many buckets a call sweeps beside its own, at least and at most; and at most one more for each item.
#: A bucket takes the server from 1 us (nothing is dead) to 5 us (all are).
_LEAST_SWEEP, _MOST_SWEEP = 1, 64
#: With a larger part dead of what was swept, the next call sweeps twice as many buckets.
_MANY_DEAD = 0.05
#: Buckets are split while a call is under way, and a clear() may come between. More often, without any
#: answer, means that something else changes the layout.
_MAX_CORRECTIONS = 16
#: Who only looks compares the parameters again after so many seconds.
_LOOK_SECONDS = 60.0
#: The layout begins with the generation, so many digits; its bits are read so many words at a time.
_GENERATION, _WORDS = 16, 1000
#: Buckets are split down to number 2^26 (lua/exact_add.lua).
_LONGEST = _GENERATION + (1 << 26) // 8

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
            buckets[bucket] = None  # of a few buckets, each but once
        return [*buckets]

    def note_dead(self, dead: int, left: int) -> None:
        """Of the entries of the buckets that a call has swept, so many were dead, and so many are left."""
        if dead > _MANY_DEAD * left:
            self.sweep = min(2 * self.sweep, _MOST_SWEEP + _ITEMS_PER_CALL)
        elif self.sweep > _LEAST_SWEEP:
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
                    was_asked_for = any(batch.agreed for batch in pending)
                    yield from self._agree(max(batch.ttl for batch in pending), anew=was_asked_for)
                calls = [call(batch) for batch in pending]
                answered = yield from self._deliver(calls, pending, self._accept)
                rest = self._left_over(answered)
                if len(answered) > len(rest):  # a batch has all of its answers
                    corrections = 0
                batches += rest
                pending = [batch for batch in pending if batch not in answered] + rest
                for shard in self._outdated.intersection(batch.shard for batch in pending):
                    self._outdated.discard(shard)
                    self._shard(shard).tree = yield from read_tree(self.config, shard)

    def _agree(self, ttl: int, *, anew: bool) -> Flow[None]:
        """Compares the parameters where they are found by name; with a ``ttl``, has them stored for
        longer than items that are added until this is done again."""
        until, longest = self._agreed
        if time.monotonic() < until and ttl <= longest and not anew:
            return
        config = self.config
        call = ScriptCall(scripts.EXACT_OPEN, (config.keys.root,), (config.stored, ttl))
        yield from self._deliver([call], [Batch([])], self._accept)
        self._agreed = time.monotonic() + (ttl / 2000 or _LOOK_SECONDS), ttl

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
                batch.answers = self._answers(batch, payload)
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
            return False
        if status == Status.STRAY and not batch.digests:
            return True  # a clear that was done already
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def _answers(self, batch: Batch, payload: Any) -> str:
        answers = super()._answers(batch, payload)
        if len(answers) < len(batch.digests):
            raise TBloomError(
                f"filter {self.config.name!r}: {len(answers)} answers to {len(batch.digests)} items; "
                "has somebody else written to its lanes?"
            )
        return answers

    def _learn(self, batch: Batch, splits: list[int], *swept: int) -> None:
        """Takes what a call has found beside the answers."""
        batch.known.note_splits(splits)
        if swept:
            self._shard(batch.shard).note_dead(*swept)

    def forget(self) -> None:
        """The filter is cleared: parameters are to be agreed on anew, and no first answer holds any more."""
        self._agreed, self.untold = (0.0, 0), Untold()

    def _shard(self, shard: int) -> _Shard:
        return self._shards.get(shard) or self._shards.setdefault(shard, _Shard())

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
