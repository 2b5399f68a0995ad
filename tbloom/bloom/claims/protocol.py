"""Claims: items that somebody works on. They count as seen once the work is done, not before.

Each shard has one hash of claims, an entry for each item under way, and one of sessions. A session
is one process's use of one filter object. It gives a sign of life now and then; what a session
claims that has given none for too long is free again, or, with a note, somebody else's to go on with.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple

from tbloom.bloom.claims.holdings import Claim, Holdings
from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import HEADER_BITS
from tbloom.engine.batches import Batch
from tbloom.engine.flow import Flow, ScriptCall
from tbloom.engine.outage import AnsweredWithoutServer
from tbloom.engine.scripts import Script
from tbloom.errors import TBloomError

_CLAIM = Script("bloom/claims/claim")
_COMMIT = Script("bloom/claims/commit")
_RELEASE = Script("bloom/claims/release")

_CLAIMS = {"1": Claim.NEW, "0": Claim.SEEN, "2": Claim.BUSY}


class _Terms(NamedTuple):
    """What is the same for all items of one call of ``claim``."""

    session: str
    ttl_ms: int
    numbers: Mapping[int, str]
    within: int
    notes: Mapping[int, str]
    giver: str


class Claims:
    """The claims of one client: flows, as in ``protocol``. Items go by their digests."""

    def __init__(self, exchange: FilterExchange, ttl_ms: int) -> None:
        self.exchange = exchange
        self.ttl_ms = ttl_ms
        self._holdings = Holdings()

    @property
    def mine(self) -> Holdings:
        """What this process holds; what it had before it was forked is its parent's."""
        if not self._holdings.are_ours():
            self._holdings = Holdings()
        return self._holdings

    def go_on_with(self, exchange: FilterExchange) -> None:
        """The filter has another number of shards than was thought; nothing is claimed yet."""
        self.exchange = exchange
        self._holdings.shards.clear()

    def hand_over(self, digests: Iterable[int]) -> None:
        """Somebody else ends these claims; the session keeps them alive until then."""
        mine = self.mine
        mine.handed_over = True
        for digest in digests:
            mine.held.pop(digest, None)

    def leave(self) -> Holdings:
        """Goes on as another session; returns what the old one holds."""
        mine, self._holdings = self.mine, Holdings()
        return mine

    def claim(
        self, digests: Iterable[int], within: int, notes: Mapping[int, str], giver: str = ""
    ) -> Flow[dict[int, Claim]]:
        """Which items are the caller's to work on?"""
        mine, digests = self.mine, list(dict.fromkeys(digests))
        numbers = mine.reserve(digests, given=bool(giver))
        wanted = list(numbers)
        batches = self.exchange.batches(wanted)
        mine.shards.update(batch.shard for batch in batches)
        terms = _Terms(mine.session, self.ttl_ms, numbers, within, notes, giver)
        try:
            yield from self.exchange.ask(
                batches, lambda plan, batch: self._claim_call(plan, batch, terms), store=False
            )
        except AnsweredWithoutServer:  # as told: the claims stay the caller's
            raise
        except BaseException:  # the flow's end too, when its driver was cancelled
            mine.owe(numbers)
            raise
        # Those that are not wanted are held here, by another thread or task.
        answers = dict.fromkeys(digests, Claim.BUSY)
        for digest, answer in _answered(batches):
            answers[digest] = _CLAIMS[answer]
            if answer != "1":
                mine.held.pop(digest, None)
        return answers

    def commit(self, digests: Iterable[int]) -> Flow[None]:
        """The work is done: the items are seen from now on."""
        mine, batches = self.mine, self.exchange.batches(digests)
        try:
            yield from self.exchange.ask(
                batches,
                lambda plan, batch: self._commit_call(plan, batch, mine.session),
                store=True,
            )
        except TBloomError:
            raise
        except BaseException:  # the flow's end too, when its driver met an error
            mine.note_undone(digest for batch in batches for digest in batch.digests)
            raise
        finally:
            for digest, _ in _answered(batches):
                mine.held.pop(digest, None)
                mine.undone.pop(digest, None)

    def release(self, digests: Iterable[int], how: str = "release") -> Flow[None]:
        """The work was not done. For ``how`` see ``lua/release.lua``."""
        mine, numbers = self.mine, dict[int, str]()
        for digest in digests:
            mine.undone.pop(digest, None)
            numbers[digest] = mine.held.pop(digest, "")
        yield from self._release(mine, numbers, how)

    def make_up(self) -> Flow[None]:
        """Makes up for calls that ended in an error: commits, and gives up claims that nobody here knows of.

        Of these, the ones with a note become abandoned ones.
        """
        mine = self.mine
        # Taken first: who claims one of them meanwhile must not have it given up.
        owed, mine.owed = mine.owed, {}
        if owed:
            yield from self._release(mine, owed, "abandon")
        undone = list(mine.undone)
        try:
            if undone:
                yield from self.commit(undone)
        except TBloomError:  # it will not go better next time
            for digest in undone:
                mine.undone.pop(digest, None)
            raise

    def _release(self, mine: Holdings, numbers: dict[int, str], how: str) -> Flow[None]:
        batches = self.exchange.batches(numbers)
        try:
            yield from self.exchange.ask(
                batches,
                lambda _, batch: self._release_call(batch, mine.session, numbers, how),
                store=None,
            )
        except BaseException:
            done = dict(_answered(batches))
            mine.owe({key: n for key, n in numbers.items() if n and key not in done})
            raise

    def hashes(self, shard: int) -> tuple[str, str]:
        """The keys of a shard's claims, and of its sessions."""
        keys = self.exchange.config.keys
        return keys.claims(shard), keys.sessions(shard)

    def _claim_call(self, plan: SliceCalls, batch: Batch, terms: _Terms) -> ScriptCall:
        """``lua/claim.lua``."""
        keys, shard = plan.config.keys, plan.shard(batch.shard)
        parts = shard.slice_ends[terms.within - 1]
        items = (
            (
                _fingerprint(key),
                terms.numbers[key],
                terms.notes.get(key, ""),
                *shard.positions(key, parts),
            )
            for key in batch.digests
        )
        return ScriptCall(
            _CLAIM,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self.hashes(batch.shard),
                *shard.keys[:parts],
            ),
            (
                *_head(plan, batch),
                shard.sizes(parts),
                terms.session,
                terms.ttl_ms,
                f"{terms.within:04x}",
                terms.giver,
                *(word for words in items for word in words),
            ),
        )

    def _commit_call(self, plan: SliceCalls, batch: Batch, session: str) -> ScriptCall:
        """``lua/commit.lua``."""
        keys, shard = plan.config.keys, plan.shard(batch.shard)
        parts = shard.slice_ends[0]
        items = (
            (_fingerprint(digest), *shard.positions(digest, parts)) for digest in batch.digests
        )
        return ScriptCall(
            _COMMIT,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                keys.register(batch.shard),
                keys.claims(batch.shard),
                *shard.keys[:parts],
            ),
            (
                *_head(plan, batch),
                shard.grown,
                shard.current.capacity,
                HEADER_BITS + shard.current.bits - 1,
                shard.sizes(parts),
                session,
                *(word for words in items for word in words),
            ),
        )

    def _release_call(
        self, batch: Batch, session: str, numbers: Mapping[int, str], how: str
    ) -> ScriptCall:
        """``lua/release.lua``."""
        items = ((_fingerprint(digest), numbers[digest]) for digest in batch.digests)
        return ScriptCall(
            _RELEASE,
            self.hashes(batch.shard),
            (session, how, *(word for words in items for word in words)),
        )


def _head(plan: SliceCalls, batch: Batch) -> tuple[Any, ...]:
    """The first arguments of ``claim`` and ``commit``: what the caller believes of the filter."""
    return (
        plan.config.stored,
        plan.begins,
        plan.ends,
        plan.expires_at(batch.shard),
        plan.agreed(batch),
        plan.shard(batch.shard).layout.text,
    )


def _fingerprint(digest: int) -> bytes:
    return digest.to_bytes(16, "big")


def _answered(batches: list[Batch]) -> Generator[tuple[int, str]]:
    """The items that have an answer. Fewer answers than items: the rest was not reached."""
    for batch in batches:
        yield from zip(batch.digests, batch.answers or "", strict=False)
