"""What to send to the server, and how to read what it replies. No I/O.

Each verb is a *flow* (see ``calls``): a generator that yields calls, is sent
their replies, and returns the verb's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from tbloom.bloom.cache import LocalCache
from tbloom.bloom.claims.holdings import Claim
from tbloom.bloom.claims.protocol import Claims
from tbloom.bloom.claims.sessions import Sessions
from tbloom.bloom.config import Config, from_stored
from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.importing import import_many
from tbloom.bloom.info import FilterInfo, ask_time, read_info, warnings
from tbloom.bloom.reconfigure import reconfigure
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.batches import Batch, answers_of
from tbloom.engine.flow import Command, Flow, deliver, text
from tbloom.engine.server import check_stored
from tbloom.errors import ConfigError, ConfigMismatch
from tbloom.items import (
    Item,
    check_at,
    check_note,
    check_notes,
    check_within,
    digest,
    digests_of,
    encode,
)
from tbloom.window import to_ms

T = TypeVar("T")


class Protocol:
    """The verbs of one filter, for one client.

    ``adopts_shards``: the number of shards was chosen here, not by the caller, so a stored filter's
    is as good.
    """

    def __init__(
        self, config: Config, session_ttl: float, cache: LocalCache, *, adopts_shards: bool = False
    ) -> None:
        self.config = config
        self.cache = cache
        self._adopts_shards = adopts_shards
        self._exchange = FilterExchange(config)
        self.claims = Claims(self._exchange, round(session_ttl * 1000))
        self.sessions = Sessions(self.claims)

    def use_shards(self, shards: int) -> None:
        """Goes on with another number of shards."""
        if shards == self.config.shards:
            return
        self.config = replace(self.config, shards=shards)
        self._exchange = FilterExchange(self.config)
        self.claims.go_on_with(self._exchange)
        self.sessions = Sessions(self.claims)

    def add(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Is the item new?"""
        within = check_within(within, self.config.slices)
        key = digest(encode(item))
        if self._is_cached(key, within):
            return False
        return (yield from self._adopting(self._add_one, key, within))

    def add_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items are new? Of a repeated one, the first."""
        within = check_within(within, self.config.slices)
        digests = digests_of(items)
        asked = [key for key in digests if not self._is_cached(key, within)]
        answers = yield from self._adopting(self._add, asked, within)
        # Popped by its first occurrence, so that the others are told "seen".
        return [answers.pop(digest, False) for digest in digests]

    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Has the item been seen?"""
        within = check_within(within, self.config.slices)
        key = digest(encode(item))
        if self._is_cached(key, within):
            return True
        answers = yield from self._adopting(self._look_up, [key], within)
        return answers[key]

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items have been seen?"""
        within = check_within(within, self.config.slices)
        digests = digests_of(items)
        asked = [key for key in digests if not self._is_cached(key, within)]
        answers = yield from self._adopting(self._look_up, asked, within)
        return [answers.get(digest, True) for digest in digests]

    def claim(
        self, item: Item, within: int | None = None, note: str = "", giver: str = ""
    ) -> Flow[Claim]:
        """Is the item the caller's to work on?"""
        within, key = check_within(within, self.config.slices), digest(encode(item))
        notes = {key: check_note(note)}
        if self._is_cached(key, within):
            return Claim.SEEN
        answers = yield from self._adopting(self._claim, [key], within, notes, giver)
        return answers[key]

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        giver: str = "",
    ) -> Flow[list[Claim]]:
        """Which of the items are the caller's to work on? Of a repeated one, the first."""
        within, digests = check_within(within, self.config.slices), digests_of(items)
        by_digest = check_notes(digests, notes)
        asked = [key for key in digests if giver or not self._is_cached(key, within)]
        answers = yield from self._adopting(self._claim, asked, within, by_digest, giver)
        told = []
        for key in digests:
            told.append(answers.setdefault(key, Claim.SEEN))
            if answers[key] is Claim.NEW:
                answers[key] = Claim.BUSY
        return told

    def commit(self, item: Item) -> Flow[None]:
        """The work on the item is done."""
        yield from self._adopting(self.claims.commit, [digest(encode(item))])

    def commit_many(self, items: Iterable[Item]) -> Flow[None]:
        """The work on the items is done."""
        yield from self._adopting(self.claims.commit, digests_of(items))

    def release(self, item: Item) -> Flow[None]:
        """The work on the item was not done."""
        yield from self._adopting(self.claims.release, [digest(encode(item))])

    def release_many(self, items: Iterable[Item]) -> Flow[None]:
        """The work on the items was not done."""
        yield from self._adopting(self.claims.release, digests_of(items))

    def hand_over(self, items: Iterable[Item]) -> None:
        """Somebody else ends the claims of these items."""
        self.claims.hand_over(digests_of(items))

    def abandon_many(self, items: Iterable[Item]) -> Flow[None]:
        """The work on the items was not done, and somebody may go on with it."""
        yield from self._adopting(self.claims.release, digests_of(items), "abandon")

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claim what dead sessions have left."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError("limit", limit, "a whole number from 1 on")
        return (yield from self._adopting(self.sessions.take_over, limit, prefix))

    def import_many(self, items: Iterable[Item], label: str | None = None) -> Flow[int]:
        """Remember the items in the slice of that label, or the current one; how many were not there?"""
        return (yield from self._adopting(self._import, digests_of(items), label))

    def _import(self, digests: list[int], label: str | None) -> Flow[int]:
        return (yield from import_many(self._exchange, digests, label))

    def clear(self) -> Flow[None]:
        """Forget everything, also if it is stored with other parameters (of this layout)."""
        self.cache.forget()
        root = self.config.keys.root
        [stored] = yield from deliver([Command(("GET", root))])
        if stored is not None and text(stored) != self.config.stored:
            yield from self._clear(from_stored(self.config.name, text(stored)))
        yield from self._clear(self.config)
        self.claims.mine.forget()

    def _clear(self, config: Config) -> Flow[None]:
        exchange = self._exchange if config is self.config else FilterExchange(config)
        if config.shards > 1:
            # First of all: whoever adds to a shard that is cleared must agree on parameters anew.
            yield from deliver([Command(("UNLINK", config.keys.root))])
        for shard in range(config.shards):
            try:
                yield from exchange.change([Batch([], shard)], SliceCalls.clear, store=None)
            except ConfigMismatch as error:  # noqa: PERF203 - after a reconfigure() without end
                other = FilterExchange(from_stored(config.name, error.stored))
                yield from other.change([Batch([], shard)], SliceCalls.clear, store=None)

    def reconfigure(self) -> Flow[None]:
        """Give the stored filter these parameters, and keep what it has seen."""
        yield from self._adopting(self._reconfigure)

    def _reconfigure(self) -> Flow[None]:
        yield from reconfigure(self.config, self._exchange.clock)

    def keys(self, at: datetime | None = None) -> Flow[list[str]]:
        """The (first) keys of the slices that are live at ``at``, or now, oldest first."""
        return (yield from self._adopting(self._keys, check_at(at)))

    def _keys(self, at: datetime | None) -> Flow[list[str]]:
        exchange = self._exchange
        if at is None:
            yield from ask_time(self.config, exchange.clock)
        yield from check_stored(self.config)
        slices = self.config.window.live(to_ms(at) if at else exchange.clock.now())
        keys, shards = self.config.keys, range(self.config.shards)
        return [keys.slice(slice.label, shard) for slice in slices for shard in shards]

    def warnings(self) -> Flow[list[str]]:
        """What threatens the filter, or has harmed it."""
        return (yield from self._adopting(self._warnings))

    def _warnings(self) -> Flow[list[str]]:
        return (yield from warnings(self.config, self._exchange.clock))

    def info(self, earlier: FilterInfo | None) -> Flow[FilterInfo]:
        """What the filter holds."""
        return (yield from self._adopting(self._info, earlier))

    def _info(self, earlier: FilterInfo | None) -> Flow[FilterInfo]:
        return (yield from read_info(self.config, self._exchange.clock, earlier))

    def _adopting(self, verb: Callable[..., Flow[T]], *args: Any) -> Flow[T]:
        """The verb's answers, with the stored filter's shards if that is all that differs."""
        try:
            return (yield from verb(*args))
        except ConfigMismatch as error:
            if not self._adopts_shards or error.differences.keys() != {"shards"}:
                raise
            self.use_shards(error.differences["shards"][0])
        return (yield from verb(*args))

    def _add_one(self, key: int, within: int) -> Flow[bool]:
        exchange = self._exchange
        if key in exchange.pending_answers:
            return (yield from self._add([key], within))[key]
        plan, batches = exchange.current_plan(), [exchange.batch_of(key)]
        yield from exchange.change(batches, lambda plan, batch: plan.add(within, batch))
        self._cache_seen([key], plan)
        return answers_of(batches)[key]

    def _add(self, digests: list[int], within: int) -> Flow[dict[int, bool]]:
        exchange = self._exchange
        plan = exchange.current_plan()
        answers = yield from exchange.add(
            digests,
            exchange.batches,
            lambda batches: exchange.change(batches, lambda plan, batch: plan.add(within, batch)),
        )
        self._cache_seen(answers, plan)
        return answers

    def _look_up(self, digests: list[int], within: int) -> Flow[dict[int, bool]]:
        exchange = self._exchange
        plan, batches = exchange.current_plan(), exchange.batches(digests)
        yield from exchange.ask(
            batches, lambda plan, batch: plan.contains(within, batch), store=False
        )
        answers = answers_of(batches)
        self._cache_seen((key for key, seen in answers.items() if seen), plan)
        return answers

    def _claim(
        self, digests: list[int], within: int, notes: dict[int, str], giver: str = ""
    ) -> Flow[dict[int, Claim]]:
        plan = self._exchange.current_plan()
        answers = yield from self.claims.claim(digests, within, notes, giver)
        self._cache_seen((key for key, told in answers.items() if told is Claim.SEEN), plan)
        return answers

    def _is_cached(self, key: int, within: int) -> bool:
        """Whether the item is known to be seen; what its caller was never told is the server's to say."""
        return (
            self.cache.size > 0
            and within == self.config.slices
            and self.cache.holds(key, self._exchange.current_plan())
            and key not in self._exchange.pending_answers
        )

    def _cache_seen(self, seen: Iterable[int], plan: SliceCalls) -> None:
        # Another plan by now: another slice is current, and the answers may be of before.
        if self.cache.size and plan is self._exchange.current_plan():
            self.cache.keep(seen, plan)
