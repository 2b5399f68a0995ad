"""One client's calls to one filter. A reply may correct the client's clock, or its layout of the filter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbloom.bloom.config import FIRST_CAPACITY, Config, from_stored
from tbloom.bloom.hasher import shard_of
from tbloom.bloom.info import items_in, parts_of
from tbloom.bloom.layout import Layout, damaged
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.dispatcher import Agreement, Dispatcher
from tbloom.engine.flow import (
    MAX_CORRECTIONS,
    Call,
    Flow,
    Status,
    deliver,
    text,
    too_many_corrections,
)
from tbloom.engine.keys import by_shard
from tbloom.engine.parameters import refusal
from tbloom.engine.pending import Batch
from tbloom.engine.server import ServerClock
from tbloom.engine.tokens import NO_LANE
from tbloom.errors import ConfigMismatch, FilterFull


class FilterDispatcher(Dispatcher):
    """One client's calls to a filter, and its view of the filter."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.name)
        self.config = config
        self.clock: ServerClock = ServerClock()
        #: The calls of the slice that was current last; None: ``current_calls`` makes them.
        self.calls: SliceCalls | None = None
        self._layouts: dict[int, Layout] = {}
        #: The number of items that the client is still to add, as announced by ``expect``.
        self.expected: int = 0
        #: By shard: the slice whose newest part is full.
        self._full: dict[int, str] = {}

    @property
    def has_agreed(self) -> bool:
        """The filter is stored with the client's parameters."""
        return self.calls is not None and self.calls.agreement is Agreement.STORED

    def batches(self, digests: Iterable[bytes]) -> list[Batch]:
        """Return the distinct digests, by shard, in batches for one call each."""
        batches: list[Batch] = []
        current, later = self.calls or self.current_calls(), 0
        shards = by_shard(digests, self.config.shards, shard_of)
        if self.expected and shards:
            later = self.expected // len(shards)
            self.expected = max(0, self.expected - sum(map(len, shards.values())))
        for shard, keys in shards.items():
            most, in_hand = current.shards[shard].most, max(len(keys), later)
            for first in range(0, len(keys), most):
                part = keys[first : first + most]
                batches.append(Batch(part, shard, NO_LANE, in_hand - first))
        return batches

    def clear_all(self) -> Flow[None]:
        """Clear all shards, one after another."""
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
        """Clear a shard."""
        batch = Batch([], shard, self.lanes.take())

        for _ in range(MAX_CORRECTIONS):
            # Read the state at each try, because other clients may begin parts in between. After the server's clock was set
            # back, it also has the parts of slices that are later than the current one.
            [fields] = yield from deliver([Call(("HKEYS", self.config.keys.state(shard)))])
            batch.known = self.current_calls()
            call = batch.known.clear(batch, parts_of(self.config, shard, fields))
            [reply] = yield from deliver([call])
            self._learn(batch, reply)
            if batch.answers is not None:
                break
        else:
            raise too_many_corrections(self._name, self._change)
        self.lanes.free.append(batch.lane)
        self.learn_layout(shard, "")

    def _next_step(self, batch: Batch, agreement: Agreement) -> Flow[None] | None:
        """Return a flow that must precede the batch's call, or None (see ``Dispatcher._next_step``).

        The flow agrees on the parameters, begins the filter, lets a slice grow, or begins the current slice of a filter
        that has grown. Items beyond the limit of a call move to the batch's ``rest``.
        """
        shard, current = batch.shard, self.calls or self.current_calls()
        of_shard = current.shards[shard]
        batch.known = current
        if len(batch.digests) > of_shard.most:
            batch.rest = [*batch.digests[of_shard.most :], *batch.rest]
            del batch.digests[of_shard.most :]
        if current.agreement < agreement:
            return self._agree(current, agreement, batch.in_hand)
        if (of_shard.has_begun and not self._full) or agreement is not Agreement.STORED:
            return None
        if not of_shard.layout.version:
            return self._tell(shard, current.open(shard, store=True, in_hand=batch.in_hand))
        if self._full and (full := self._full.get(shard)) in current.labels:
            many = batch.in_hand if batch.in_hand > FIRST_CAPACITY else 0
            return self._tell(shard, current.grow(shard, current.labels.index(full), many))
        if of_shard.begins_after is not None:
            return self._begin_slice(current, shard, of_shard.begins_after, batch.in_hand)
        return None

    def _agree(self, current: SliceCalls, agreement: Agreement, in_hand: int) -> Flow[None]:
        """Compare the parameters at the root. For ``Agreement.STORED``, store them there if none are."""
        root, batch = None if self.config.shards > 1 else 0, Batch([])
        call = current.open(root, store=agreement is Agreement.STORED, in_hand=in_hand)
        [reply] = yield from deliver([call])
        self._learn(batch, reply)
        if batch.answers is not None:
            current.agreement = agreement

    def _tell(self, shard: int, call: Call) -> Flow[None]:
        """Send a call without items, whose reply is the shard's layout."""
        [reply] = yield from deliver([call])
        self._learn(Batch([], shard), reply)

    def _begin_slice(self, current: SliceCalls, shard: int, last: str, in_hand: int) -> Flow[None]:
        """Begin the current slice with room for as many items as the last one held, or as are in hand, if these are more."""
        keys, label, layout = self.config.keys, current.labels[0], current.layout(shard)
        fields = [keys.field(last, number) for number in range(len(layout.parts(last)))]
        asked = ("HMGET", keys.state(shard), *fields), ("EXISTS", keys.slice(label, shard))
        [counts, has_begun] = yield from deliver([*map(Call, asked)])
        if has_begun:  # before the server's clock was set back, with the usual part
            entries = layout.grown(label, current.labels, in_hand)
        else:
            part = layout.beginning(sum(map(items_in, counts)), in_hand)
            entries = layout.with_parts({label: [part]}, current.labels)
        yield from self._tell(shard, current.begin(shard, layout.version, entries))

    def _learn(self, batch: Batch, reply: Any) -> None:
        """Note a batch's answers, or correct the view of the filter (see ``Dispatcher._learn``)."""
        status, payload, *stored = reply
        if status == Status.OK:
            batch.answers = answers = self._answers(batch, payload) if batch.digests else ""
            if len(answers) < len(batch.digests):
                self._learn_full(batch)
        elif status == Status.CLOCK:
            self.clock.learn(payload)
            self.calls = None
        elif status == Status.LAYOUT:
            if stored and stored[0] and text(stored[0]) != self.config.stored:
                raise refusal(self.config, Status.MISMATCH, stored[0])
            self.learn_layout(batch.shard, text(payload))
        elif status == Status.UNKNOWN:
            self.learn_layout(batch.shard, "")
            self.current_calls().agreement = Agreement.NONE
        elif status == Status.STRAY and not batch.digests:
            batch.answers = ""  # a clear that was executed before
        else:
            raise refusal(self.config, status, payload)

    def _learn_full(self, batch: Batch) -> None:
        """Note that the newest part of the batch's slice is full. Raise FilterFull if the filter may not grow."""
        if self.config.grow:
            self._full[batch.shard] = batch.known.labels[batch.age]
        else:
            raise FilterFull(self.config.name, self.config.first_capacity)

    def learn_layout(self, shard: int, stored: str) -> None:
        """Take over the shard's stored layout; an empty text means that none is stored."""
        layout = Layout(self.config, stored, shard)
        if stored and not layout.generation:
            raise damaged(self.config, stored, shard)
        self.current_calls().learn_layout(shard, layout if stored else None)
        self._full.pop(shard, None)
        self.pending_answers.note_generation(shard, layout.generation)

    def last_call(self, batch: Batch) -> Call:
        """Return a call of ``lua/bloom/add.lua`` without items."""
        calls: SliceCalls = batch.known
        return calls.shards[batch.shard].parts[1, 0].add(batch.lane, [])

    def _lasts(self, batch: Batch) -> int:
        """Return how long (ms) the items that a batch has added are remembered."""
        expires: int = batch.known.expires_at(0, batch.age)  # the first shard expires first
        return expires - self.clock.now()

    def _rest_of(self, batch: Batch) -> Batch | None:
        """Return a batch of the items that still need a call, or None.

        The call had no room for them, or did not answer them, because the newest part became full.
        """
        answered = len(batch.answers or "")
        if answered >= len(batch.digests) and not batch.rest:
            return None
        rest = [*batch.digests[answered:], *batch.rest]
        del batch.digests[answered:]
        return self._batch_of_rest(batch, rest)

    def current_calls(self) -> SliceCalls:
        """Return the calls of the slice that the client believes current."""
        current, now = self.calls, self.clock.now()
        if current is None or not current.begins <= now < current.ends:
            current = self.calls = SliceCalls(self.config, now, self._layouts)
        return current
