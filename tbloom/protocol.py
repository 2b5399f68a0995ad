"""What to send to the server, and how to read what it replies. No I/O.

Each verb is a *flow* (see ``calls``): a generator that yields calls, is sent
their replies, and returns the verb's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tbloom import scripts, survey
from tbloom.batches import Batch, Untold
from tbloom.calls import CALLS_AT_ONCE, Flow, ScriptCall, chunks, deliver, text
from tbloom.clock import ServerClock
from tbloom.config import Config, from_stored
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.hashing import Item, digest, encode
from tbloom.info import FilterInfo
from tbloom.lanes import LANE_TTL_MS, Lanes
from tbloom.sizing import HEADER_BITS
from tbloom.window import to_ms

#: One script call may ask for about so many bits. Measured on Redis 7.0: 0.4 us each, 2.4 ms in all.
_BITS_PER_CALL = 6_000
#: A slice changes between question and correction once, by chance twice. More often means that
#: the server's clock runs away.
_MAX_CORRECTIONS = 16

_OK, _CLOCK, _MISMATCH, _STRAY = range(4)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What stays the same while a slice is current."""

    begins: int
    ends: int
    expires: int
    keys: tuple[str, ...]  # of the live slices, newest first


class Protocol:
    """The verbs of one filter, for one client."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._clock = ServerClock()
        self._lanes = Lanes()
        self._untold = Untold()
        self._plan: _Plan | None = None
        bits_per_item = 2 * (config.hashes + config.slices)
        self._items_per_call = max(1, _BITS_PER_CALL // bits_per_item)

    def add(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Is the item new?"""
        within = self._within(within)
        key = digest(encode(item))
        batch = self._untold.take([key]).get(key) or Batch([key])
        yield from self._add([batch], within)
        return batch.answers[batch.digests.index(key)] == "1"

    def add_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items are new? Of a repeated one, the first."""
        within = self._within(within)
        digests = _digests(items)
        untold = self._untold.take(digests)
        batches = self._batches(digest for digest in digests if digest not in untold)
        batches += {id(batch): batch for batch in untold.values()}.values()
        yield from self._add(batches, within)
        answers = _answers(batches)
        # Popped by its first occurrence, so that the others are told "seen".
        return [answers.pop(digest, False) for digest in digests]

    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Has the item been seen?"""
        batch = Batch([digest(encode(item))])
        yield from self._look_up([batch], self._within(within))
        return batch.answers == "1"

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items have been seen?"""
        within = self._within(within)
        digests = _digests(items)
        batches = self._batches(digests)
        yield from self._look_up(batches, within)
        answers = _answers(batches)
        return [answers[digest] for digest in digests]

    def clear(self) -> Flow[None]:
        """Forget everything, also if it is stored with other parameters (of this layout)."""
        lane = self._lanes.take()
        number = lane.next_number()
        for _ in range(_MAX_CORRECTIONS):
            plan, config = self._current_plan(), self.config
            lane_key = config.keys.lane(lane.client, lane.lane)
            call = ScriptCall(
                scripts.CLEAR,
                (config.keys.config, lane_key, *plan.keys),
                (config.stored, number, plan.begins, plan.ends, plan.expires, LANE_TTL_MS),
            )
            [(status, payload)] = yield from deliver([call])
            if status == _MISMATCH:
                yield from Protocol(from_stored(config.name, text(payload))).clear()
            elif status == _CLOCK:
                self._clock.learn(payload)
            else:
                self._lanes.give_back(lane)
                return
        raise _runaway_clock()

    def keys(self, at: datetime | None = None) -> Flow[list[str]]:
        """The keys of the slices that are live at ``at``, or now, oldest first."""
        if at is None:
            yield from survey.ask_time(self.config, self._clock)
            ms = self._clock.now()
        elif isinstance(at, datetime) and at.tzinfo is not None:
            ms = to_ms(at)
        else:
            raise ConfigError("at", at, "a datetime with a time zone")
        return [self.config.keys.slice(slice.label) for slice in self.config.window.live(ms)]

    def info(self) -> Flow[FilterInfo]:
        """What the filter holds."""
        return (yield from survey.info(self.config, self._clock))

    def _batches(self, digests: Iterable[int]) -> list[Batch]:
        """The distinct digests, in batches of what one call may carry."""
        distinct = list(dict.fromkeys(digests))
        return [Batch(list(some)) for some in chunks(distinct, self._items_per_call)]

    def _add(self, batches: list[Batch], within: int) -> Flow[None]:
        config = self.config

        def call(batch: Batch) -> ScriptCall:
            if batch.lane is None:
                batch.lane = self._lanes.take()
                batch.number = batch.lane.next_number()
            plan = self._current_plan()
            lane = config.keys.lane(batch.lane.client, batch.lane.lane)
            return ScriptCall(
                scripts.ADD,
                (config.keys.config, lane, *plan.keys[:within]),
                (
                    config.stored,
                    batch.number,
                    plan.begins,
                    plan.ends,
                    plan.expires,
                    LANE_TTL_MS,
                    HEADER_BITS + config.bits - 1,
                    *map(self._positions, batch.digests),
                ),
            )

        try:
            yield from self._ask(batches, call)
        except BaseException:  # the flow's end too, when its driver was cancelled
            self._untold.keep(batches)
            raise
        for batch in batches:
            if batch.lane is not None and not batch.again:
                self._lanes.give_back(batch.lane)

    def _look_up(self, batches: list[Batch], within: int) -> Flow[None]:
        config = self.config

        def call(batch: Batch) -> ScriptCall:
            plan = self._current_plan()
            return ScriptCall(
                scripts.CONTAINS,
                (config.keys.config, *plan.keys[:within]),
                (config.stored, plan.begins, plan.ends, *map(self._positions, batch.digests)),
            )

        yield from self._ask(batches, call)

    def _ask(self, batches: list[Batch], call: Callable[[Batch], ScriptCall]) -> Flow[None]:
        """Sends the batches' calls until each has its answers."""
        for some in chunks(batches, CALLS_AT_ONCE):
            pending = some
            for _ in range(_MAX_CORRECTIONS):
                replies = yield from deliver([call(batch) for batch in pending])
                pending = [
                    batch
                    for batch, reply in zip(pending, replies, strict=True)
                    if not self._accept(batch, *reply)
                ]
                if not pending:
                    break
            else:
                raise _runaway_clock()

    def _accept(self, batch: Batch, status: int, payload: Any) -> bool:
        """Takes a script's reply; False: to be asked again."""
        if status == _OK:
            batch.answers = text(payload)
            return True
        if status == _CLOCK:
            self._clock.learn(payload)
            return False
        if status == _MISMATCH:
            raise ConfigMismatch(self.config.name, self.config.differences(text(payload)))
        raise TBloomError(f"filter {self.config.name!r}: the server takes a call for a stray copy")

    def _within(self, within: int | None) -> int:
        slices = self.config.slices
        if within is None:
            return slices
        if isinstance(within, int) and not isinstance(within, bool) and 1 <= within <= slices:
            return within
        raise ConfigError("within", within, f"a whole number of slices from 1 to {slices}")

    def _current_plan(self) -> _Plan:
        plan, now = self._plan, self._clock.now()
        if plan is None or not plan.begins <= now < plan.ends:
            window = self.config.window
            slices = window.live(now)
            current = slices[-1]
            keys = tuple(self.config.keys.slice(slice.label) for slice in reversed(slices))
            plan = _Plan(current.start, current.end, window.expires(current), keys)
            self._plan = plan
        return plan

    def _positions(self, digest: int) -> str:
        """The positions of an item's bits in a slice's key, as the scripts want them."""
        return " ".join([str(HEADER_BITS + bit) for bit in self.config.hasher.offsets(digest)])


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
