"""One client's conversation with the server about one filter: who is asked what, until all have answers.

What the server may reply besides an answer: its clock, other parameters, another layout. Each is
learnt, and the question asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tbloom import survey
from tbloom.batches import Batch, Untold
from tbloom.calls import CALLS_AT_ONCE, Flow, ScriptCall, chunks, deliver, text
from tbloom.clock import ServerClock
from tbloom.config import Config
from tbloom.errors import ConfigMismatch, FilterFull, TBloomError
from tbloom.hashing import shard_of
from tbloom.lanes import Lanes
from tbloom.layout import Layout
from tbloom.plan import Plan

#: A slice changes between question and correction once, by chance twice. More often, without any
#: answer, means that the server's clock runs away.
_MAX_CORRECTIONS = 16

_OK, _CLOCK, _MISMATCH, _STRAY, _UNKNOWN, _LAYOUT, _FULL = range(7)
#: One script call may ask for about so many bits. Measured on Redis 7.0: 0.4 us each, 2.4 ms in all.
_BITS_PER_CALL = 6_000
_CallFor = Callable[[Plan, Batch], ScriptCall]


class Session:
    """What a client has learnt about a filter, and its tokens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = ServerClock()
        self.untold = Untold()
        self._lanes = Lanes()
        self._plan: Plan | None = None
        self._agreed: tuple[Plan, bool] | None = None
        self._layouts: dict[int, Layout] = {}

    def batches(self, digests: Iterable[int]) -> list[Batch]:
        """The distinct digests, by shard, in batches of what one call may carry."""
        shards: dict[int, list[int]] = {}
        for key in dict.fromkeys(digests):
            shards.setdefault(shard_of(key, self.config.shards), []).append(key)
        return [
            Batch(list(some), shard)
            for shard, keys in shards.items()
            for some in chunks(keys, self._items_per_call(shard))
        ]

    def _items_per_call(self, shard: int) -> int:
        plan = self.current_plan().shard(shard)
        hashes = self.config.hashes * len(plan.hashers)
        return max(1, _BITS_PER_CALL // (2 * (hashes + len(plan.keys))))

    def change(self, batches: list[Batch], call: _CallFor) -> Flow[None]:
        """Asks with tokens, and notes whose answers got lost."""
        for batch in batches:
            self._give_token(batch)
        try:
            yield from self.ask(batches, call, store=True)
        except BaseException:  # the flow's end too, when its driver was cancelled
            self.untold.keep(batches)
            raise
        for batch in batches:
            if batch.lane is not None and not batch.again:
                self._lanes.give_back(batch.lane)

    def _give_token(self, batch: Batch) -> None:
        if batch.lane is None:
            batch.lane = self._lanes.take()
            batch.number = batch.lane.next_number()

    def ask(self, batches: list[Batch], call: _CallFor, *, store: bool) -> Flow[None]:
        """Sends the batches' calls until each has its answers."""
        for some in chunks(batches, CALLS_AT_ONCE):
            pending, corrections = some, 0
            while pending:
                if corrections > _MAX_CORRECTIONS:
                    raise TBloomError(
                        f"the server's clock left the current slice {_MAX_CORRECTIONS} times in a row"
                    )
                corrections += 1
                plan = self.current_plan()
                shards = {batch.shard for batch in pending}
                if not (yield from self._prepare(plan, shards, store=store)):
                    continue
                replies = yield from deliver([call(plan, batch) for batch in pending])
                unanswered = [
                    batch
                    for batch, reply in zip(pending, replies, strict=True)
                    if not self._accept(batch, *reply)
                ]
                if len(unanswered) < len(pending):
                    corrections = 0
                pending = unanswered + self._unanswered(batches)

    def _prepare(self, plan: Plan, shards: set[int], *, store: bool) -> Flow[bool]:
        """What has to be done once a slice. False: to be tried again, with the plan of another time."""
        # One shard's script compares the parameters itself.
        if self.config.shards > 1 and self._agreed not in ((plan, True), (plan, store)):
            [reply] = yield from deliver([plan.open(store=store)])
            if not self._accept(Batch([]), *reply):
                return False
            self._agreed = (plan, store)
        if store and self._layouts:
            for shard in shards:
                if not (yield from self._begin_slice(plan, shard)):
                    return False
        return True

    def _begin_slice(self, plan: Plan, shard: int) -> Flow[bool]:
        """Where slices have grown, one that begins has room for what the last one held."""
        layout = plan.layout(shard)
        last = layout.newest_before(plan.labels[0], plan.labels)
        if last is None:
            return True
        items = yield from survey.count_items(self.config, shard, last, layout)
        [[status, payload]] = yield from deliver([plan.begin(shard, items)])
        if status == _CLOCK:
            self.clock.learn(payload)
            return False
        plan.learn_layout(shard, text(payload))
        return True

    def _unanswered(self, batches: list[Batch]) -> list[Batch]:
        """Batches of the items that a call left over because a part became full."""
        rest = []
        for batch in batches:
            if batch.answers and len(batch.answers) < len(batch.digests):
                if not batch.again:  # else most of its items are not asked for this time
                    rest.append(Batch(batch.digests[len(batch.answers) :], batch.shard))
                del batch.digests[len(batch.answers) :]
        for batch in rest:
            self._give_token(batch)
        batches += rest
        return rest

    def _accept(self, batch: Batch, status: int, payload: Any) -> bool:
        """Takes a script's reply; False: to be asked again."""
        if status == _OK:
            if batch.digests:
                batch.answers = text(payload)
            return True
        if status == _CLOCK:
            self.clock.learn(payload)
            return False
        if status == _LAYOUT:
            self.current_plan().learn_layout(batch.shard, text(payload))
            return False
        if status == _FULL:
            batch.answers = text(payload)
            raise FilterFull(self.config.name, self.config.capacity)
        if status == _MISMATCH:
            raise ConfigMismatch(self.config.name, self.config.differences(text(payload)))
        if status == _UNKNOWN:
            self._agreed, batch.agreed = None, True
            return False
        if status == _STRAY and not batch.digests:
            return True  # a clear that was done already
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def current_plan(self) -> Plan:
        """The plan for the server's time, as far as known."""
        plan, now = self._plan, self.clock.now()
        if plan is None or not plan.fits(now):
            plan = self._plan = Plan(self.config, now, self._layouts)
        return plan
