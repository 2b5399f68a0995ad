"""One client's calls to one filter; a reply may correct the client's clock, or its layout of the filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tbloom.bloom.config import FIRST_CAPACITY, Config, from_stored
from tbloom.bloom.hasher import shard_of
from tbloom.bloom.info import items_in, parts_of
from tbloom.bloom.layout import Layout, damaged
from tbloom.bloom.script_calls import Parts, SliceCalls
from tbloom.engine.dispatcher import Dispatcher
from tbloom.engine.flow import Call, Flow, Status, chunks, corrected, deliver, text
from tbloom.engine.keys import by_shard
from tbloom.engine.parameters import refusal
from tbloom.engine.pending import Batch
from tbloom.engine.server import ServerClock
from tbloom.errors import ConfigMismatch, FilterFull


class Usual(NamedTuple):
    """What calls are made from in a filter with one shard, once a call has met it."""

    calls: SliceCalls
    #: Those of the whole window.
    parts: Parts
    #: The limit of items in one call.
    most: int
    #: Makes the batch of a call of ``add``.
    batch: Callable[..., Batch]


class FilterDispatcher(Dispatcher):
    """What a client knows of a filter, and its calls."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.name)
        self.config = config
        self.clock: ServerClock = ServerClock()
        #: The calls of the current slice, as far as known. (``current_calls`` makes them.)
        self.calls: SliceCalls | None = None
        #: What usual calls are made from, if they are prepared.
        self.usual: Usual | None = None
        self._compared: tuple[SliceCalls, bool] | None = None
        self._layouts: dict[int, Layout] = {}
        #: The number of items that the client will add, these and later ones.
        self.expected: int = 0
        #: By shard: the slice whose newest part is full.
        self._full: dict[int, str] = {}

    def batches(self, digests: Iterable[bytes]) -> list[Batch]:
        """The distinct digests, by shard, in batches for one call each."""
        batches = list[Batch]()
        shards = by_shard(digests, self.config.shards, shard_of)
        later = self.expected // len(shards) if shards else 0
        self.expected = max(0, self.expected - sum(map(len, shards.values())))
        for shard, keys in shards.items():
            in_hand = max(len(keys), later)
            for part in chunks(keys, self.current_calls().shard(shard).most):
                batches.append(Batch(list(part), shard, in_hand=in_hand))
                in_hand -= len(part)
        return batches

    def prepare(self) -> Usual | None:
        """Prepares what calls are usually made from; None, where they are not usual, and before a first one has met the filter."""
        calls = self.calls
        if calls is None or self.config.shards > 1:
            return None
        shard = calls.shard(0)
        if not shard.layout.version or shard.begins_after:
            return None
        batch = partial(Batch, known=calls, generation=shard.layout.generation)
        self.usual = Usual(calls, shard.parts(self.config.slices), shard.most, batch)
        return self.usual

    def clear_all(self) -> Flow[None]:
        """Forgets what all shards hold, one after another."""
        config = self.config
        if config.shards > 1:
            # First, so that a client that adds to a cleared shard must agree on parameters again.
            yield from deliver([Call(("UNLINK", config.keys.root))])
        for shard in range(config.shards):
            try:
                yield from self.clear(shard)
            except ConfigMismatch as error:  # after a reconfigure() that did not finish
                key = config.keys.config(shard)
                other = FilterDispatcher(from_stored(config.name, error.stored, key))
                yield from other.clear(shard)

    def clear(self, shard: int) -> Flow[None]:
        """Forget what a shard holds."""
        batch = Batch([], shard, self.lanes.take())

        def attempt() -> Flow[bool | None]:
            # Read the state each time: others may have begun parts since an earlier try. It also counts the parts of slices
            # that are later than the current one, once the server's clock was set back.
            [fields] = yield from deliver([Call(("HKEYS", self.config.keys.state(shard)))])
            batch.known = self.current_calls()
            call = batch.known.clear(batch, parts_of(self.config, shard, fields))
            left = yield from self._deliver({batch: call}, self._accept)
            return None if left else True

        yield from corrected(self._name, self._change, attempt)
        self.lanes.free.append(batch.lane)
        self.learn_layout(shard, "")

    def _prepare(self, batches: list[Batch], *, store: bool | None) -> Flow[bool]:
        """Compares the parameters and begins the filter and the current slice, where that is due; adds batches, where a call
        has too many items for the parts that are now known. False: another slice is current, or the layout has changed."""
        current = self.current_calls()
        for batch in [*batches]:
            most, batch.known = current.shard(batch.shard).most, current
            if len(batch.digests) > most:
                batches += self._split(batch, most, most)
        if store is None:
            return True
        if self._full and any(batch.shard in self._full for batch in batches):
            return (yield from self._grow(current, batches))
        shards, root = {batch.shard for batch in batches}, None if self.config.shards > 1 else 0
        # A single shard's parameters were compared when its layout was learned.
        is_compared = root == 0 and bool(current.layout(0).version)
        if not is_compared and self._compared not in ((current, True), (current, store)):
            call = {Batch([], root or 0, known=current): current.open(root, store=store)}
            left = yield from self._deliver(call, self._accept)
            if self.current_calls() is not current or (left and root is None):
                return False
            self._compared = (current, store)
        if not store:
            return True
        calls = {
            Batch([], shard, known=current): current.open(shard, store=True)
            for shard in shards
            if not current.layout(shard).version
        }
        if calls:
            yield from self._deliver(calls, self._accept)
        if not all(current.layout(shard).version for shard in shards):
            return False
        return (yield from self._begin_slices(current, batches))

    def _split(self, batch: Batch, first: int, size: int) -> list[Batch]:
        """Shortens a batch to its ``first`` items; returns batches of the others, of at most ``size`` items."""
        left = batch.digests[first:]
        del batch.digests[first:]
        return [self._batch_of_rest(batch, [*part]) for part in chunks(left, size)]

    def _begin_slices(self, current: SliceCalls, batches: list[Batch]) -> Flow[bool]:
        """Begins the current slice with room for as many items as the last one held, or as are in hand, in shards that have
        grown."""
        calls = dict[Batch, Call]()
        for shard in {batch.shard for batch in batches}:
            last, layout = current.shard(shard).begins_after, current.layout(shard)
            if last is not None:
                keys, label = self.config.keys, current.labels[0]
                fields = [keys.field(last, number) for number in range(len(layout.parts(last)))]
                asked = ("HMGET", keys.state(shard), *fields), ("EXISTS", keys.slice(label, shard))
                [counts, has_begun] = yield from deliver([*map(Call, asked)])
                if has_begun:  # before the server's clock was set back: its usual part holds items
                    entries = layout.grown(label, current.labels, _in_hand(batches, shard))
                else:
                    items = sum(map(items_in, counts))
                    part = layout.beginning(items, _in_hand(batches, shard))
                    entries = layout.with_parts({label: [part]}, current.labels)
                calls[Batch([], shard, known=current)] = current.begin(
                    shard, layout.version, entries
                )
        if calls:
            yield from self._deliver(calls, self._accept)
        # Another client may have changed the layout first, without beginning the slice.
        return all(current.shard(batch.shard).begins_after is None for batch in calls)

    def _grow(self, current: SliceCalls, batches: list[Batch]) -> Flow[bool]:
        """Gives slices whose newest part is full a further one, unless another client has."""
        calls = {}
        for shard in {batch.shard for batch in batches}:
            label = self._full.pop(shard, "")
            if label in current.labels and current.layout(shard).version:
                age, in_hand = current.labels.index(label), _in_hand(batches, shard)
                many = in_hand if in_hand > FIRST_CAPACITY else 0
                calls[Batch([], shard, known=current)] = current.grow(shard, age, many)
        if calls:
            yield from self._deliver(calls, self._accept)
        return False  # the calls may have to be split anew

    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: the call must be made anew."""
        status, payload, *stored = reply
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload)
                if len(batch.answers) < len(batch.digests):
                    self._learn_full(batch)
            return True
        if status == Status.CLOCK:
            self.clock.learn(payload)
            return False
        if status == Status.LAYOUT:
            if stored and stored[0] and text(stored[0]) != self.config.stored:
                raise refusal(self.config, Status.MISMATCH, stored[0])
            self.learn_layout(batch.shard, text(payload))
            return False
        if status == Status.UNKNOWN:
            self.learn_layout(batch.shard, "")
            self._compared = None
            return False
        if status == Status.STRAY and not batch.digests:
            return True  # a clear that was executed before
        raise refusal(self.config, status, payload)

    def _learn_full(self, batch: Batch) -> None:
        """The newest part of the batch's slice has no room for a new item."""
        if self.config.grow:
            self._full[batch.shard] = batch.known.labels[batch.age]
        else:
            raise FilterFull(self.config.name, self.config.first_capacity)

    def learn_layout(self, shard: int, stored: str) -> None:
        """Takes over the shard's stored layout; an empty one: there is none."""
        layout = Layout(self.config, stored, shard)
        if stored and not layout.generation:
            raise damaged(self.config, stored, shard)
        self.current_calls().learn_layout(shard, layout if stored else None)
        self.usual = None
        self._full.pop(shard, None)
        self.pending_answers.note_generation(shard, layout.generation)

    def last_call(self, batch: Batch) -> Call:
        """``lua/bloom/add.lua`` without items."""
        calls: SliceCalls = batch.known
        return calls.shard(batch.shard).parts(1).add(batch.lane, [])

    def _lasts(self, batch: Batch) -> int:
        """How long (ms) the items that a batch has added are remembered."""
        expires: int = batch.known.expires_at(0, batch.age)  # not with the pauses between shards
        return expires - self.clock.now()

    def _rest_of(self, batch: Batch) -> list[Batch]:
        """The items without an answer, because the part before them became full."""
        answered, asked = len(batch.answers or ""), len(batch.digests)
        return self._split(batch, answered, asked) if answered < asked else []

    def current_calls(self) -> SliceCalls:
        """The calls of the slice that the client believes current."""
        current, now = self.calls, self.clock.now()
        if current is None or not current.begins <= now < current.ends:
            current = self.calls = SliceCalls(self.config, now, self._layouts)
            self.usual = None
        return current


def _in_hand(batches: list[Batch], shard: int) -> int:
    """The number of items that a client has in hand for a shard."""
    return max(batch.in_hand for batch in batches if batch.shard == shard)
