"""The verbs of a filter: what to send to the server, and how to read its replies. No I/O.

Each verb is a *flow* (see ``engine/flow``): a generator that yields calls, is sent their replies, and
returns the verb's answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tbloom.bloom.cache import LocalCache
from tbloom.bloom.claims.held import Claim, ClaimCall
from tbloom.bloom.claims.protocol import Claims
from tbloom.bloom.claims.sessions import Sessions
from tbloom.bloom.config import Config, from_stored
from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.hasher import digest, digests_of
from tbloom.bloom.importing import import_many
from tbloom.bloom.info import FilterInfo, Glance, ask_time, glance, read_info
from tbloom.bloom.last_seen import last_seen
from tbloom.bloom.reconfigure import finish, reconfigure
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.swap import swap
from tbloom.engine.batches import Batch, answers_of, in_order
from tbloom.engine.fingerprinter import move
from tbloom.engine.flow import Command, Flow, ScriptCall, deliver, text
from tbloom.engine.keys import Keys
from tbloom.engine.server import check_stored
from tbloom.errors import ConfigError, ConfigMismatch
from tbloom.items import (
    Item,
    check_at,
    check_note,
    check_notes,
    check_within,
)
from tbloom.window import Period, to_ms


class Protocol:
    """The verbs of one filter, for one client.

    ``adopts_shards``: the user gave no number of shards, so that of a stored filter is adopted.
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
        """Switches to another number of shards."""
        if shards == self.config.shards:
            return
        self.config = replace(self.config, shards=shards)
        self._exchange = FilterExchange(self.config)
        self.claims.use(self._exchange)
        self.sessions = Sessions(self.claims)

    def agree(self, error: ConfigMismatch) -> Flow[None]:
        """Switches to the stored number of shards, or finishes a ``reconfigure`` to these parameters; else raises the error."""
        if self._adopts_shards and error.differences.keys() == {"shards"}:
            self.use_shards(error.differences["shards"][0])
        else:
            yield from finish(self.config, self._exchange.clock, error)

    def add(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Is the item new? Remembers it."""
        within = self.config.slices if within is None else check_within(within, self.config.slices)
        key, exchange = digest(item), self._exchange
        if self.cache.size or exchange.pending_answers.exist:
            known = yield from self._add(self._not_cached([key], within), within)
            return known.get(key, False)
        batch = exchange.batch_of(key)
        yield from exchange.change([batch], lambda batch: batch.known.add(within, batch))
        return batch.answers == "1"

    def add_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items are new? A repeated item is new once."""
        within, digests = check_within(within, self.config.slices), digests_of(items)
        answers = yield from self._add(self._not_cached(digests, within), within)
        return in_order(answers, digests)

    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Has the item been seen?"""
        within, key = check_within(within, self.config.slices), digest(item)
        if self._is_cached(key, within):
            return True
        return (yield from self._look_up([key], within))[key]

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Which of the items have been seen?"""
        within, digests = check_within(within, self.config.slices), digests_of(items)
        answers = yield from self._look_up(self._not_cached(digests, within), within)
        return [answers.get(digest, True) for digest in digests]

    def last_seen(self, item: Item) -> Flow[Period | None]:
        """In which slice was the item seen last?"""
        return (yield from last_seen(self._exchange, [digest(item)]))[0]

    def last_seen_many(self, items: Iterable[Item]) -> Flow[list[Period | None]]:
        """In which slice was each of the items seen last?"""
        return (yield from last_seen(self._exchange, digests_of(items)))

    def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Flow[Claim]:
        """Claims the item, if it is new and no living session claims it."""
        within, key = check_within(within, self.config.slices), digest(item)
        notes = {key: check_note(note)}
        if self._is_cached(key, within):
            return Claim.SEEN
        with self.claims.own.calling([key]) as call:
            return (yield from self._claim(call, [key], within, notes, previous_owner))[key]

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> Flow[list[Claim]]:
        """Claims those of the items that are new; a repeated item is new once."""
        within, digests = check_within(within, self.config.slices), digests_of(items)
        by_digest = check_notes(digests, notes)
        asked = digests if previous_owner else self._not_cached(digests, within)
        with self.claims.own.calling(asked) as call:
            found = yield from self._claim(call, asked, within, by_digest, previous_owner)
            answers = []
            for key in digests:
                answers.append(found.setdefault(key, Claim.SEEN))
                if found[key] is Claim.NEW:
                    found[key] = Claim.BUSY
            return answers

    def commit(self, item: Item) -> Flow[None]:
        """The work on the item is done."""
        yield from self.claims.commit([digest(item)])

    def commit_many(self, items: Iterable[Item]) -> Flow[None]:
        """The work on the items is done."""
        yield from self.claims.commit(digests_of(items))

    def release(self, item: Item) -> Flow[None]:
        """The work on the item was not done."""
        yield from self.claims.release([digest(item)])

    def release_many(self, items: Iterable[Item], how: str = "release") -> Flow[None]:
        """The work on the items was not done. For ``how`` see ``lua/bloom/claims/release.lua``."""
        yield from self.claims.release(digests_of(items), how)

    def assume_new(self, items: Iterable[Item]) -> None:
        """Drops the items' lost answers, and holds their claims."""
        digests = digests_of(items)
        self._exchange.pending_answers.forget(digests)
        self.claims.own.hold(digests)

    def hand_over(self, items: Iterable[Item]) -> None:
        """Leaves these claims to another process."""
        self.claims.hand_over(digests_of(items))

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claims what dead sessions have left."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError("limit", limit, "a whole number from 1 on")
        return (yield from self.sessions.take_over(limit, prefix))

    def import_many(self, items: Iterable[Item], label: str | None = None) -> Flow[int]:
        """Remembers the items in the slice with that label, or the current one; returns how many it wrote."""
        return (yield from import_many(self._exchange, digests_of(items), label))

    def clear(self) -> Flow[None]:
        """Forgets everything, also if the filter is stored with other parameters (of this layout)."""
        self._exchange.pending_answers.clear()
        root = self.config.keys.root
        try:
            [stored] = yield from deliver([Command(("GET", root))])
            if stored is not None and text(stored) != self.config.stored:
                yield from self._clear(from_stored(self.config.name, text(stored)))
            yield from self._clear(self.config)
            yield from deliver([Command(("UNLINK", self.config.keys.fingerprinter()))])
        finally:
            self.forget_cached()
        self.claims.own.forget()

    def forget_cached(self) -> None:
        """Empties the local cache; answers that are on their way are not kept either."""
        self._exchange.renew_calls()

    def _clear(self, config: Config) -> Flow[None]:
        exchange = self._exchange if config is self.config else FilterExchange(config)
        if config.shards > 1:
            # First, so that a client that adds to a cleared shard must agree on parameters again.
            yield from deliver([Command(("UNLINK", config.keys.root))])
        for shard in range(config.shards):
            try:
                yield from exchange.change([Batch([], shard)], _clear_call, store=None)
                exchange.learn_layout(shard, "")
            except ConfigMismatch as error:  # noqa: PERF203 - after a reconfigure() that did not finish
                key = config.keys.config(shard)
                other = FilterExchange(from_stored(config.name, error.stored, key))
                yield from other.change([Batch([], shard)], _clear_call, store=None)

    def reconfigure(self) -> Flow[None]:
        """Gives the stored filter these parameters, and keeps what it has seen."""
        yield from reconfigure(self.config, self._exchange.clock)

    def swap(self, name: str) -> Flow[None]:
        """Puts another filter in the place of this one."""
        try:
            yield from swap(self._exchange, name)
            yield from move(Keys(name).fingerprinter(), self.config.keys.fingerprinter())
        finally:
            self.forget_cached()

    def keys(self, at: datetime | None = None) -> Flow[list[str]]:
        """The keys of the slices that are live at ``at``, or now, oldest first; the first part's of a slice that grew."""
        exchange, at = self._exchange, check_at(at)
        if at is None:
            yield from ask_time(self.config, exchange.clock)
        yield from check_stored(self.config)
        slices = self.config.window.live(to_ms(at) if at else exchange.clock.now())
        keys, shards = self.config.keys, range(self.config.shards)
        return [keys.slice(slice.label, shard) for slice in slices for shard in shards]

    def warnings(self) -> Flow[list[str]]:
        """What threatens the filter, or has harmed it."""
        return (yield from self.glance()).warnings

    def glance(self) -> Flow[Glance]:
        """What is known of the filter without counting its bits."""
        clock = self._exchange.clock
        yield from ask_time(self.config, clock)
        return (yield from glance(self.config, clock))

    def info(self, earlier: FilterInfo | None) -> Flow[FilterInfo]:
        """What the filter holds."""
        return (yield from read_info(self.config, self._exchange.clock, earlier))

    def _add(self, digests: list[bytes], within: int) -> Flow[dict[bytes, bool]]:
        exchange, calls = self._exchange, self._exchange.current_calls()
        answers = yield from exchange.add(
            digests, exchange.batches, lambda batch: batch.known.add(within, batch)
        )
        self._cache_seen(answers, calls)
        return answers

    def _look_up(self, digests: list[bytes], within: int) -> Flow[dict[bytes, bool]]:
        exchange = self._exchange
        calls, batches = exchange.current_calls(), exchange.batches(digests)
        yield from exchange.ask(batches, lambda batch: batch.known.contains(within, batch))
        answers = answers_of(batches)
        self._cache_seen((key for key, seen in answers.items() if seen), calls)
        return answers

    def _claim(
        self,
        call: ClaimCall,
        digests: list[bytes],
        within: int,
        notes: dict[bytes, str],
        previous_owner: str,
    ) -> Flow[dict[bytes, Claim]]:
        calls = self._exchange.current_calls()
        answers = yield from self.claims.claim(call, digests, within, notes, previous_owner)
        self._cache_seen((key for key, answer in answers.items() if answer is Claim.SEEN), calls)
        return answers

    def _not_cached(self, digests: list[bytes], within: int) -> list[bytes]:
        if not self.cache.size:
            return digests
        return [key for key in digests if not self._is_cached(key, within)]

    def _is_cached(self, key: bytes, within: int) -> bool:
        """True if the local cache has the item, and no answer for it is pending."""
        return (
            self.cache.size > 0
            and within == self.config.slices
            and self.cache.holds(key, self._exchange.current_calls())
            and key not in self._exchange.pending_answers
        )

    def _cache_seen(self, seen: Iterable[bytes], calls: SliceCalls) -> None:
        # The answers may be from before: of the last slice, or of what was cleared.
        if self.cache.size and calls is self._exchange.current_calls():
            self.cache.keep(seen, calls)


def _clear_call(batch: Batch) -> ScriptCall:
    call: ScriptCall = batch.known.clear(batch)
    return call
