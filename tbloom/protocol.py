"""What to send to the server, and how to read what it replies. No I/O.

Each verb is a *flow* (see ``calls``): a generator that yields calls, is sent
their replies, and returns the verb's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from tbloom import survey
from tbloom.batches import Batch, Untold
from tbloom.calls import CALLS_AT_ONCE, Command, Flow, ScriptCall, chunks, deliver, text
from tbloom.clock import ServerClock
from tbloom.config import Config, from_stored
from tbloom.errors import ConfigError, ConfigMismatch, FilterFull, TBloomError
from tbloom.hashing import Item, digest, encode, shard_of
from tbloom.info import FilterInfo
from tbloom.lanes import Lanes
from tbloom.layout import Layout
from tbloom.plan import Plan
from tbloom.reconfigure import reconfigure
from tbloom.window import to_ms

#: One script call may ask for about so many bits. Measured on Redis 7.0: 0.4 us each, 2.4 ms in all.
_BITS_PER_CALL = 6_000
#: A slice changes between question and correction once, by chance twice. More often means that
#: the server's clock runs away.
_MAX_CORRECTIONS = 16

_OK, _CLOCK, _MISMATCH, _STRAY, _UNKNOWN, _LAYOUT, _FULL = range(7)
T = TypeVar("T")
_CallFor = Callable[[Plan, Batch], ScriptCall]


class Protocol:
    """The verbs of one filter, for one client.

    ``adopts_shards``: the number of shards was chosen here, not by the caller, so a stored filter's
    is as good.
    """

    def __init__(self, config: Config, *, adopts_shards: bool = False) -> None:
        self.config = config
        self._adopts_shards = adopts_shards
        self._clock = ServerClock()
        self._lanes = Lanes()
        self._untold = Untold()
        self._plan: Plan | None = None
        self._agreed: tuple[Plan, bool] | None = None
        self._layouts: dict[int, Layout] = {}

    def use_shards(self, shards: int) -> None:
        """Goes on with another number of shards."""
        self.config = replace(self.config, shards=shards)
        self._plan = self._agreed = None
        self._layouts = {}
        self._untold = Untold()

    def add(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Is the item new?"""
        within = self._within(within)
        key = digest(encode(item))
        answers = yield from self._adopting(self._add, [key], within)
        return answers[key]

    def add_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items are new? Of a repeated one, the first."""
        within = self._within(within)
        digests = _digests(items)
        answers = yield from self._adopting(self._add, digests, within)
        # Popped by its first occurrence, so that the others are told "seen".
        return [answers.pop(digest, False) for digest in digests]

    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Has the item been seen?"""
        within = self._within(within)
        key = digest(encode(item))
        answers = yield from self._adopting(self._look_up, [key], within)
        return answers[key]

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items have been seen?"""
        within = self._within(within)
        digests = _digests(items)
        answers = yield from self._adopting(self._look_up, digests, within)
        return [answers[digest] for digest in digests]

    def clear(self) -> Flow[None]:
        """Forget everything, also if it is stored with other parameters (of this layout)."""
        root = self.config.keys.root
        [stored] = yield from deliver([Command(("GET", root))])
        if stored is not None and text(stored) != self.config.stored:
            yield from Protocol(from_stored(self.config.name, text(stored))).clear()
        shards = [Batch([], shard) for shard in range(self.config.shards)]
        yield from self._change(shards, Plan.clear)
        if self.config.shards > 1:
            yield from deliver([Command(("UNLINK", root))])

    def reconfigure(self) -> Flow[None]:
        """Give the stored filter these parameters, and keep what it has seen."""
        yield from reconfigure(self.config, self._clock)

    def keys(self, at: datetime | None = None) -> Flow[list[str]]:
        """The keys of the slices that are live at ``at``, or now, oldest first."""
        if at is None:
            yield from survey.ask_time(self.config, self._clock)
            ms = self._clock.now()
        elif isinstance(at, datetime) and at.tzinfo is not None:
            ms = to_ms(at)
        else:
            raise ConfigError("at", at, "a datetime with a time zone")
        keys, shards = self.config.keys, range(self.config.shards)
        slices = self.config.window.live(ms)
        return [keys.slice(slice.label, shard) for slice in slices for shard in shards]

    def info(self) -> Flow[FilterInfo]:
        """What the filter holds."""
        return (yield from self._adopting(self._info))

    def _info(self) -> Flow[FilterInfo]:
        return (yield from survey.info(self.config, self._clock))

    def _adopting(self, verb: Callable[..., Flow[T]], *args: Any) -> Flow[T]:
        """The verb's answers, with the stored filter's shards if that is all that differs."""
        try:
            return (yield from verb(*args))
        except ConfigMismatch as error:
            if not self._adopts_shards or error.differences.keys() != {"shards"}:
                raise
            self.use_shards(error.differences["shards"][0])
        return (yield from verb(*args))

    def _batches(self, digests: Iterable[int]) -> list[Batch]:
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
        plan = self._current_plan().shard(shard)
        hashes = self.config.hashes * len(plan.hashers)
        return max(1, _BITS_PER_CALL // (2 * (hashes + len(plan.keys))))

    def _add(self, digests: list[int], within: int) -> Flow[dict[int, bool]]:
        untold = self._untold.take(digests)
        batches = self._batches(digest for digest in digests if digest not in untold)
        batches += {id(batch): batch for batch in untold.values()}.values()
        yield from self._change(batches, lambda plan, batch: plan.add(within, batch))
        answers = _answers(batches)
        missing = [digest for digest in digests if digest not in answers] if untold else []
        return {**answers, **(yield from self._add(missing, within))} if missing else answers

    def _look_up(self, digests: list[int], within: int) -> Flow[dict[int, bool]]:
        batches = self._batches(digests)
        yield from self._ask(batches, lambda plan, batch: plan.contains(within, batch), store=False)
        return _answers(batches)

    def _change(self, batches: list[Batch], call: _CallFor) -> Flow[None]:
        """Asks with tokens, and notes whose answers got lost."""
        for batch in batches:
            self._give_token(batch)
        try:
            yield from self._ask(batches, call, store=True)
        except BaseException:  # the flow's end too, when its driver was cancelled
            self._untold.keep(batches)
            raise
        for batch in batches:
            if batch.lane is not None and not batch.again:
                self._lanes.give_back(batch.lane)

    def _give_token(self, batch: Batch) -> None:
        if batch.lane is None:
            batch.lane = self._lanes.take()
            batch.number = batch.lane.next_number()

    def _ask(self, batches: list[Batch], call: _CallFor, *, store: bool) -> Flow[None]:
        """Sends the batches' calls until each has its answers."""
        for some in chunks(batches, CALLS_AT_ONCE):
            pending = some
            for _ in range(_MAX_CORRECTIONS):
                yield from self._agree(store=store)
                if store and self._layouts:
                    yield from self._begin_slice({batch.shard for batch in pending})
                plan = self._current_plan()
                replies = yield from deliver([call(plan, batch) for batch in pending])
                pending = [
                    batch
                    for batch, reply in zip(pending, replies, strict=True)
                    if not self._accept(batch, *reply)
                ]
                pending += self._unanswered(batches)
                if not pending:
                    break
            else:
                raise _runaway_clock()

    def _agree(self, *, store: bool) -> Flow[None]:
        """Compares the parameters of a sharded filter, once a slice; one shard's script does it itself."""
        for _ in range(_MAX_CORRECTIONS):
            plan = self._current_plan()
            if self.config.shards == 1 or self._agreed in ((plan, True), (plan, store)):
                return
            [reply] = yield from deliver([plan.open(store=store)])
            if self._accept(Batch([]), *reply):
                self._agreed = (plan, store)
        raise _runaway_clock()

    def _begin_slice(self, shards: set[int]) -> Flow[None]:
        """Where slices have grown, one that begins has room for what the last one held."""
        plan = self._current_plan()
        for shard in shards:
            last = plan.layout(shard).newest_before(plan.labels[0], plan.labels)
            if last is not None:
                items = yield from survey.count_items(self.config, shard, last, plan.layout(shard))
                [[_, text_]] = yield from deliver([plan.begin(shard, items)])
                plan.learn_layout(shard, text(text_))

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
            self._clock.learn(payload)
            return False
        if status == _LAYOUT:
            self._current_plan().learn_layout(batch.shard, text(payload))
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

    def _within(self, within: int | None) -> int:
        slices = self.config.slices
        if within is None:
            return slices
        if isinstance(within, int) and not isinstance(within, bool) and 1 <= within <= slices:
            return within
        raise ConfigError("within", within, f"a whole number of slices from 1 to {slices}")

    def _current_plan(self) -> Plan:
        plan, now = self._plan, self._clock.now()
        if plan is None or not plan.fits(now):
            plan = self._plan = Plan(self.config, now, self._layouts)
        return plan


def _answers(batches: list[Batch]) -> dict[int, bool]:
    return {
        digest: answer == "1"
        for batch in batches
        for digest, answer in zip(batch.digests, batch.answers, strict=True)
    }


def _digests(items: Iterable[Item]) -> list[int]:
    if isinstance(items, str | bytes):
        raise ConfigError("items", items, "an iterable of items, not a single one")
    return [digest(encode(item, f"items[{i}]")) for i, item in enumerate(items)]


def _runaway_clock() -> TBloomError:
    return TBloomError(
        f"the server's clock left the current slice {_MAX_CORRECTIONS} times in a row"
    )
