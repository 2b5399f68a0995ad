"""One client's conversation with the server about one filter: who is asked what, until all have answers.

What the server may reply besides an answer: its clock, other parameters, another layout. Each is
learnt, and the question asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from tbloom.bloom.config import Config
from tbloom.bloom.info import count_items
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import ShardCalls, SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.clock import ServerClock
from tbloom.engine.exchange import Exchange
from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    Flow,
    ScriptCall,
    Status,
    chunks,
    text,
)
from tbloom.engine.keys import by_shard, shard_of
from tbloom.errors import ConfigMismatch, FilterFull, TBloomError

#: A slice changes between question and correction once, by chance twice. More often, without any
#: answer, means that the server's clock runs away.
_MAX_CORRECTIONS = 16

#: One script call may ask for about so many bits. Measured on Redis 7.0: 0.4 us each, 1.2 ms in all.
#: Of several calls, a client of ours works each out while the server has the one before.
_BITS_PER_CALL = 3_000

logger = logging.getLogger(__name__)
_CallFor = Callable[[SliceCalls, Batch], ScriptCall]


def items_per_call(config: Config, shard: ShardCalls) -> int:
    """How many items one call may ask for. (Of the items of one call, none sees another's bits.)"""
    hashes = config.hashes * len(shard.hashers)
    return max(1, _BITS_PER_CALL // (2 * (hashes + len(shard.keys))))


class FilterExchange(Exchange):
    """What a client has learnt about a filter, and its tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.name)
        self.config = config
        self.clock = ServerClock()
        self._plan: SliceCalls | None = None
        self._agreed: tuple[SliceCalls, bool] | None = None
        self._layouts: dict[int, Layout] = {}

    def batches(self, digests: Iterable[int], label: str | None = None) -> list[Batch]:
        """The distinct digests, by shard, in batches of what one call may carry; for the slice of that label."""
        return [
            Batch(list(some), shard, label=label)
            for shard, keys in by_shard(digests, self.config.shards).items()
            for some in chunks(keys, items_per_call(self.config, self.current_plan().shard(shard)))
        ]

    def batch_of(self, digest: int) -> Batch:
        """A batch of one."""
        return Batch([digest], shard_of(digest, self.config.shards))

    def change(
        self, batches: list[Batch], call: _CallFor, *, store: bool | None = True
    ) -> Flow[None]:
        """Asks with tokens, and notes whose answers got lost."""
        yield from self.settle(batches, self.ask(batches, call, store=store))

    def ask(self, batches: list[Batch], call: _CallFor, *, store: bool | None) -> Flow[None]:
        """Sends the batches' calls until each has its answers.

        ``store``: whether parameters may be stored where there are none; None: they don't matter.
        """
        for some in chunks(list(batches), CALLS_AT_ONCE):  # batches gets more meanwhile
            pending, corrections = list(some), 0
            while pending:
                if corrections > _MAX_CORRECTIONS:
                    raise TBloomError(
                        f"the server's clock left the current slice {_MAX_CORRECTIONS} times in a row"
                    )
                corrections += 1
                plan = self.current_plan()
                if not self._is_prepared(plan, store=store) and not (
                    yield from self._prepare(plan, pending, store=store)
                ):
                    continue
                answered = yield from self._send(plan, pending, call)
                if answered:
                    corrections = 0
                rest = self._left_over(answered)
                batches += rest
                if len(answered) < len(pending):
                    rest = [batch for batch in pending if batch not in answered] + rest
                pending = rest

    def _send(self, plan: SliceCalls, batches: list[Batch], call: _CallFor) -> Flow[list[Batch]]:
        """Sends one call for each batch; returns those that are done."""
        calls = [call(plan, batch) for batch in batches]
        return (
            yield from self._deliver(
                calls, batches, lambda batch, reply: self._accept(plan, batch, *reply)
            )
        )

    def _is_prepared(self, plan: SliceCalls, *, store: bool | None) -> bool:
        """Whether it is plain that nothing has to be done first."""
        return store is None or (
            (self.config.shards == 1 or self._agreed in ((plan, True), (plan, store)))
            and not (store and self._layouts)
        )

    def _prepare(self, plan: SliceCalls, pending: list[Batch], *, store: bool | None) -> Flow[bool]:
        """What has to be done once a slice. False: to be tried again, with the plan of another time."""
        # One shard's script compares the parameters itself.
        if self.config.shards > 1 and self._agreed not in ((plan, True), (plan, store)):
            if not (
                yield from self._send(
                    plan, [Batch([])], lambda plan, _: plan.open(store=bool(store))
                )
            ):
                return False
            self._agreed = (plan, bool(store))
        return not (store and self._layouts) or (yield from self._begin_slices(plan, pending))

    def _begin_slices(self, plan: SliceCalls, pending: list[Batch]) -> Flow[bool]:
        """Where slices have grown, one that begins has room for what the last one held."""
        items: dict[int, int] = {}
        for shard in {batch.shard for batch in pending}:
            last = plan.must_begin_after(shard)
            if last is not None:
                count = count_items(self.config, shard, last, plan.layout(shard))
                items[shard] = yield from count
        if not items:
            return True
        yield from self._send(
            plan,
            [Batch([], shard) for shard in items],
            lambda plan, batch: plan.begin(batch.shard, items[batch.shard]),
        )
        # Another client may have changed the layout first, and not begun the slice either.
        return all(plan.must_begin_after(shard) is None for shard in items)

    def _left_over(self, batches: list[Batch]) -> list[Batch]:
        """New batches of the items that calls left unanswered because a part became full."""
        rest = []
        for batch in batches:
            if batch.answers is not None and len(batch.answers) < len(batch.digests):
                left = batch.digests[len(batch.answers) :]
                del batch.digests[len(batch.answers) :]
                rest += self._rest_of(batch, left)
        return rest

    def _accept(
        self, plan: SliceCalls, batch: Batch, status: int, payload: Any, dropped: int = 0
    ) -> bool:
        """Takes a script's reply; False: to be asked again."""
        if dropped:
            logger.warning(
                "filter %r: the server has dropped the slice %s early, so what it held is forgotten; "
                "is its maxmemory-policy noeviction?",
                self.config.name,
                batch.label or plan.labels[0],
            )
        if status == Status.OK:
            if batch.digests:
                batch.answers = self._answers(batch, payload, all_of_them=False)
            return True
        if status == Status.CLOCK:
            self.clock.learn(payload)
            return False
        if status == Status.LAYOUT:
            plan.learn_layout(batch.shard, text(payload))
            return False
        if status == Status.FULL:
            batch.answers = self._answers(batch, payload, all_of_them=False)
            raise FilterFull(self.config.name, self.config.capacity)
        if status == Status.MISMATCH:
            stored = text(payload)
            raise ConfigMismatch(self.config.name, self.config.differences(stored), stored)
        if status == Status.UNKNOWN:
            self._agreed, batch.agreed = None, True
            return False
        if status == Status.STRAY and not batch.digests:
            return True  # a clear that was done already
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def current_plan(self) -> SliceCalls:
        """The plan for the server's time, as far as known."""
        plan, now = self._plan, self.clock.now()
        if plan is None or not plan.fits(now):
            plan = self._plan = SliceCalls(self.config, now, self._layouts)
        return plan
