"""One client's calls to one filter. A reply may correct the client's clock or its view of the filter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbloom.bloom import calls
from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.config import Config, from_stored
from tbloom.bloom.hasher import neighbours, shard_of
from tbloom.bloom.info import MISSING, items_in, parts_of
from tbloom.bloom.layout import Layout, damaged
from tbloom.bloom.view import Header, View
from tbloom.engine.batches import Dispatcher, Knowledge
from tbloom.engine.flow import (
    Call,
    Flow,
    Status,
    corrected,
    request,
    request_all,
    text,
)
from tbloom.engine.keys import by_shard
from tbloom.engine.parameters import refusal
from tbloom.engine.pending import now_ms
from tbloom.engine.server import ServerClock
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import ConfigMismatch, FilterFull


class FilterDispatcher(Dispatcher[FilterBatch]):
    """One client's calls to a filter, and its view of the filter."""

    _BATCH = FilterBatch

    def __init__(self, config: Config) -> None:
        super().__init__(config.name)
        self.config = config
        self.clock: ServerClock = ServerClock()
        #: The last view; None: ``current_view`` makes another one. Calls use it without a look at the clock, because their
        #: scripts compare the server's time with the slice's end.
        self.view: View | None = None
        #: How many sessions waited for work at the last commit whose reply had their number.
        self.waiting: int = 0
        self._layouts: dict[int, Layout] = {}
        #: By shard, where and when this client has stored items last: the generation, when they leave the window (ms), and when the
        #: call was sent (monotonic, ms).
        self._stored: dict[int, tuple[str, int, int]] = {}
        #: How many shards the server has lost, as far as this client knows.
        self.lost: int = 0

    def batches(self, digests: Iterable[bytes], within: int, age: int = 0) -> list[FilterBatch]:
        """Return batches of the distinct digests. Each batch has one shard, and is sent in one call.

        The calls check the ``within`` newest slices, and add new items to the slice of this age.
        """
        batches: list[FilterBatch] = []
        view = self.view or self.current_view()
        for shard, share in by_shard(digests, self.config.shards, shard_of).items():
            header = view.header(shard, within, age)
            most = header.most_items
            ordered = neighbours(share, header.most_neighbours) if len(share) > 1 else share
            for first in range(0, len(ordered), most):
                some = ordered[first : first + most]
                batches.append(FilterBatch(some, shard, within=within, age=age))
        return batches

    def clear_all(self) -> Flow[None]:
        """Clear all shards, one after another."""
        config = self.config
        if config.shards > 1:
            # The root key comes first, so that a client that adds to a cleared shard must compare its parameters again.
            yield from request([Call(("UNLINK", config.keys.root))])
        for shard in range(config.shards):
            try:
                yield from self.clear(shard)
            except ConfigMismatch as error:  # the root key was lost, and stored by another client
                key = config.keys.config(shard)
                other = FilterDispatcher(from_stored(config.name, error.stored, key, config.prefix))
                yield from other.clear(shard)

    def begin(self) -> Flow[None]:
        """Begin the filter as its first item does, if it is not stored: with its parameters, and the layout of a shard."""
        first = FilterBatch([], 0, within=self.config.slices)
        yield from self._prepare(first, Knowledge.STORED)

    def clear(self, shard: int) -> Flow[None]:
        """Clear a shard."""
        batch = FilterBatch([], shard, self.lanes.take())

        def attempt() -> Flow[bool | None]:
            # The state is read at each try, because other clients may begin parts in between. If the server's clock was set
            # back, the state also has parts of slices that are later than the current one.
            [fields] = yield from request([Call(("HKEYS", self.config.keys.state(shard)))])
            counted = parts_of(self.config, shard, fields)
            [reply] = yield from request([calls.clear(batch, self.current_view(), counted)])
            if reply[0] == Status.STRAY:  # an earlier copy has cleared it
                return True
            self._learn(batch, reply)
            return True if batch.answers is not None else None

        yield from corrected(self._name, self._correction_cause, attempt)
        self.lanes.free.append(batch.lane)
        self._stored.pop(shard, None)
        self.learn_layout(shard, "")

    def _next_step(self, batch: FilterBatch, required: Knowledge) -> Flow[None] | None:
        """Return a flow that must precede the batch's call, or None (see ``Dispatcher._next_step``).

        The flow compares the parameters, begins the filter, adds a part to a full slice, or begins the current slice of a
        filter that has grown. Items beyond the limit of a call move to the batch's ``rest``.
        """
        view, shard = self.view or self.current_view(), batch.shard
        if batch.label is not None:
            batch.age = view.age_of(batch.label)
            batch.within = batch.age + 1
        header = batch.header = view.header(shard, batch.within, batch.age)
        layout = header.layout
        batch.generation = layout.generation
        if len(batch.digests) > header.most_items:
            batch.rest = [*batch.digests[header.most_items :], *batch.rest]
            del batch.digests[header.most_items :]
        if view.knowledge < required:
            return self._compare_parameters(view, required)
        if required is not Knowledge.STORED:
            return None
        stored = self._stored.get(shard)
        if not layout.generation or (stored and stored[0] != layout.generation):
            return self._open(view, shard)
        if layout.full is not None and layout.full in view.labels:
            return self._grow(view, shard, layout.full)
        if header.sized_after is not None:
            return self._begin_slice(header, shard, header.sized_after)
        return None

    def _compare_parameters(self, view: View, required: Knowledge) -> Flow[None]:
        """Compare the parameters at the root key. For ``Knowledge.STORED``, store them there if none are stored."""
        root, batch = None if self.config.shards > 1 else 0, FilterBatch([])
        store = required is Knowledge.STORED
        [reply] = yield from request([calls.open_(view, root, store=store)])
        self._learn(batch, reply)
        if batch.answers is not None:
            view.knowledge = required

    def _open(self, view: View, shard: int) -> Flow[None]:
        """Begin a shard, if it is not stored. If the server has lost it, note so there."""
        generation, expires, since = self._stored.get(shard, ("", 0, 0))
        # What has left the window is no loss; and a shard says only for as long as lanes are kept that it was cleared.
        is_recent = self.clock.now() < expires and now_ms() < since + LANE_TTL_MS
        known = generation if is_recent else ""
        yield from self._ask_layout(shard, calls.open_(view, shard, store=True, known=known))
        if not view.layout(shard).generation:  # it was refused, and is asked again
            return
        if self._stored.get(shard, ("",))[0] != generation:
            return  # another thread has begun it, too, and has stored items in it since
        if self._stored.pop(shard, None) and known:
            [lost] = yield from request([Call(("HGET", self.config.keys.state(shard), "lost"))])
            self.lost += lost is not None

    def _ask_layout(self, shard: int, call: Call) -> Flow[None]:
        """Send a call whose reply is the shard's layout."""
        [reply] = yield from request([call])
        self._learn(FilterBatch([], shard), reply)

    def _grow(self, view: View, shard: int, label: str) -> Flow[None]:
        """Add a part to a slice whose newest part is full."""
        age = view.labels.index(label)
        # The entries are those of the header's layout, because meanwhile another thread may learn a later one.
        header = view.header(shard, age + 1, age)
        older = view.labels[age + 1 :] if age else []
        counts = yield from request_all([self._counts(header.layout, shard, one) for one in older])
        held = max((sum(map(items_in, each)) for each in counts), default=0)
        entries = header.layout.grown(label, view.labels, held)
        yield from self._ask_layout(shard, calls.set_layout(view, shard, header.packed, entries))

    def _counts(self, layout: Layout, shard: int, label: str) -> Call:
        """Return a call that reads the number of items in each part of a slice."""
        keys, parts = self.config.keys, layout.parts(label)
        fields = [keys.field(label, number) for number in range(len(parts))]
        return Call(("HMGET", keys.state(shard), *fields))

    def _begin_slice(self, known: Header, shard: int, last: str) -> Flow[None]:
        """Begin the current slice, with room for as many items as the last one held.

        The entries follow from the layout of the ``known`` header, and the call has its version: meanwhile another thread may
        learn a later layout, in which the slice has begun.
        """
        view, layout, keys = known.view, known.layout, self.config.keys
        label, header = view.labels[0], view.header_without_items(shard, layout.version)
        ttl = Call(("PTTL", keys.slice(label, shard)))
        [counts, time_left] = yield from request([self._counts(layout, shard, last), ttl])
        if time_left != MISSING:
            # It began with the default part, before the server's clock was set back.
            entries = layout.grown(label, view.labels)
        else:
            part = layout.beginning(sum(map(items_in, counts)))
            entries = layout.with_parts({label: [part]}, view.labels)
        yield from self._ask_layout(shard, calls.set_layout(view, shard, header, entries))

    def _learn(self, batch: FilterBatch, reply: Any) -> None:
        """Note a batch's answers, and that it has stored items (see ``Dispatcher._learn``)."""
        self.learn(batch, reply)
        if "1" in (batch.answers or ""):
            since, expires = batch.unanswered_since or 0, batch.header.expires
            self._stored[batch.shard] = batch.generation, expires, since

    def learn(self, batch: FilterBatch, reply: Any) -> None:
        """Note the answers of a batch that stores nothing, or correct the view of the filter."""
        status, payload, *stored = reply
        if status == Status.OK:
            batch.answers = answers = self._answers(batch, payload) if batch.digests else ""
            if len(answers) < len(batch.digests):
                self._learn_full(batch)
            if stored:
                self.waiting = stored[0]
        elif status == Status.CLOCK:
            self.clock.learn(payload, batch.unanswered_since)
            self.view = None
        elif status == Status.LAYOUT:
            if stored and stored[0] and text(stored[0]) != self.config.stored:
                raise refusal(self.config, Status.MISMATCH, stored[0])
            self.learn_layout(batch.shard, text(payload))
        elif status == Status.UNKNOWN:
            self.learn_layout(batch.shard, "")
            self.current_view().knowledge = Knowledge.NONE
        else:
            raise refusal(self.config, status, payload)

    def _learn_full(self, batch: FilterBatch) -> None:
        """Note that the newest part of the batch's slice is full. Raise FilterFull if slices may not grow."""
        if self.config.grow:
            batch.header.layout.full = batch.header.view.labels[batch.age]
        else:
            raise FilterFull(self.config.name, self.config.first_capacity, batch.shard)

    def learn_layout(self, shard: int, stored: str) -> None:
        """Replace the shard's layout by the stored one. An empty text means that none is stored."""
        layout = Layout(self.config, stored, shard)
        if stored and not layout.generation:
            raise damaged(self.config, stored, shard)
        self.current_view().learn_layout(shard, layout if stored else None)

    def replay(self, batch: FilterBatch) -> Call:
        """Return a call of ``lua/bloom/add.lua`` without items."""
        return calls.add(batch)

    def _lifetime_ms(self, batch: FilterBatch) -> int:
        """Return how long (ms) the items that a batch has added are remembered."""
        expires = batch.header.view.expires_at(0, batch.age)  # the first shard expires first
        return expires - self.clock.now()

    def _rest_of(self, batch: FilterBatch) -> FilterBatch | None:
        """Return a batch of the items that need another call, or None.

        They did not fit into the call, or got no answer because the newest part became full.
        """
        answered = len(batch.answers or "")
        if answered >= len(batch.digests) and not batch.rest:
            return None
        rest = [*batch.digests[answered:], *batch.rest]
        del batch.digests[answered:]
        return self._batch_of_rest(batch, rest)

    @property
    def has_items(self) -> bool:
        """Whether a shard had items when it was asked last."""
        return any(layout.version for layout in self._layouts.values())

    def current_view(self) -> View:
        """Return the view of the slice that the client believes current."""
        view, now = self.view, self.clock.now()
        if view is None or not view.begins <= now < view.ends:
            view = self.view = View(self.config, now, self._layouts)
        return view
