"""Claims: items that somebody works on. They count as seen once the work is done, not before.

Each shard has one hash of claims, an entry for each item under way, and one of sessions. A session
is one process's use of one filter object. It gives a sign of life now and then; what a session
claims that has given none for too long is free again, or, with a note, somebody else's to go on with.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from tbloom import scripts
from tbloom.batches import Batch
from tbloom.calls import Flow, ScriptCall
from tbloom.conversation import Conversation
from tbloom.errors import TBloomError
from tbloom.holdings import Claim, Hold, Holdings
from tbloom.plan import Plan
from tbloom.sizing import HEADER_BITS

#: For so long (s) a session counts as alive without another sign of life.
SESSION_TTL = 60.0

_CLAIMS = {"1": Claim.NEW, "0": Claim.SEEN, "2": Claim.BUSY}


class Claims:
    """The claims of one client: flows, as in ``protocol``. Items go by their digests."""

    def __init__(self, conversation: Conversation, ttl_ms: int) -> None:
        self.conversation = conversation
        self.ttl_ms = ttl_ms
        self._holdings = Holdings()

    @property
    def mine(self) -> Holdings:
        """What this process holds; what it had before it was forked is its parent's."""
        if not self._holdings.are_ours():
            self._holdings = Holdings()
        return self._holdings

    def leave(self) -> Holdings:
        """Goes on as another session; returns what the old one holds."""
        mine, self._holdings = self.mine, Holdings()
        return mine

    def claim(
        self, digests: Iterable[int], within: int, notes: Mapping[int, str], giver: str = ""
    ) -> Flow[dict[int, Claim]]:
        """Which items are the caller's to work on?"""
        mine, digests = self.mine, list(dict.fromkeys(digests))
        hold, wanted = mine.reserve(digests)
        batches = self.conversation.batches(wanted)
        mine.shards.update(batch.shard for batch in batches)
        try:
            yield from self.conversation.ask(
                batches,
                lambda plan, batch: self._claim_call(
                    plan, batch, within=within, hold=hold, notes=notes, giver=giver
                ),
                store=False,
            )
        except BaseException:  # the flow's end too, when its driver was cancelled
            mine.owe(wanted, hold)
            raise
        # Those that are not wanted are held here, by another thread or task.
        answers = dict.fromkeys(digests, Claim.BUSY)
        for digest, answer in _answered(batches):
            answers[digest] = _CLAIMS[answer]
            if answer != "1":
                del mine.held[digest]
        return answers

    def commit(self, digests: Iterable[int], within: int) -> Flow[None]:
        """The work is done: the items are seen from now on."""
        mine, batches = self.mine, self.conversation.batches(digests)
        try:
            yield from self.conversation.ask(
                batches,
                lambda plan, batch: self._commit_call(plan, batch, within),
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

    def release(self, digests: Iterable[int]) -> Flow[None]:
        """The work was not done: the items are as if never claimed."""
        held, digests = self.mine.held, list(digests)
        for digest in digests:
            self.mine.undone.pop(digest, None)
        yield from self._release({digest: held.pop(digest, None) for digest in digests})

    def abandon(self, digests: Iterable[int]) -> Flow[None]:
        """As ``release``, but those with a note wait for somebody to take them over."""
        held = self.mine.held
        yield from self._release({key: held.pop(key, None) for key in digests}, abandon=True)

    def make_up(self) -> Flow[None]:
        """Makes up for calls that ended in an error: commits, and gives up claims that nobody here knows of.

        Of these, the ones with a note become abandoned ones.
        """
        mine = self.mine
        if mine.undone:
            yield from self.commit(list(mine.undone), self.conversation.config.slices)
        owed: dict[int, Hold | None] = {**mine.owed}
        if owed:
            yield from self._release(owed, abandon=True)
        for digest, hold in owed.items():
            if mine.owed.get(digest) is hold:
                del mine.owed[digest]

    def _release(self, holds: dict[int, Hold | None], *, abandon: bool = False) -> Flow[None]:
        mine, batches = self.mine, self.conversation.batches(holds)
        try:
            yield from self.conversation.ask(
                batches,
                lambda _, batch: self._release_call(batch, holds, abandon=abandon),
                store=None,
            )
        except BaseException:
            done = dict(_answered(batches))
            for digest, hold in holds.items():
                if digest not in done and hold is not None:
                    mine.owe([digest], hold)
            raise

    def hashes(self, shard: int) -> tuple[str, str]:
        """The keys of a shard's claims, and of its sessions."""
        keys = self.conversation.config.keys
        return keys.claims(shard), keys.sessions(shard)

    def _claim_call(
        self,
        plan: Plan,
        batch: Batch,
        *,
        within: int,
        hold: Hold,
        notes: Mapping[int, str],
        giver: str,
    ) -> ScriptCall:
        """``lua/claim.lua``."""
        keys, shard = plan.config.keys, plan.shard(batch.shard)
        parts = shard.slice_ends[within - 1]
        items = (
            (_fingerprint(digest), notes.get(digest, ""), shard.positions(digest))
            for digest in batch.digests
        )
        return ScriptCall(
            scripts.CLAIM,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                *self.hashes(batch.shard),
                *shard.keys[:parts],
            ),
            (
                plan.config.stored,
                plan.begins,
                plan.ends,
                plan.expires_at(batch.shard),
                plan.agreed(batch),
                shard.layout.text,
                " ".join(shard.groups[:parts]),
                self.mine.session,
                self.ttl_ms,
                hold.number,
                giver,
                *(word for words in items for word in words),
            ),
        )

    def _commit_call(self, plan: Plan, batch: Batch, within: int) -> ScriptCall:
        """``lua/commit.lua``."""
        keys, shard = plan.config.keys, plan.shard(batch.shard)
        parts = shard.slice_ends[within - 1]
        items = ((_fingerprint(digest), shard.positions(digest)) for digest in batch.digests)
        return ScriptCall(
            scripts.COMMIT,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                keys.register(batch.shard),
                keys.claims(batch.shard),
                *shard.keys[:parts],
            ),
            (
                plan.config.stored,
                plan.begins,
                plan.ends,
                plan.expires_at(batch.shard),
                plan.agreed(batch),
                shard.layout.text,
                shard.grown,
                shard.current.capacity,
                HEADER_BITS + shard.current.bits - 1,
                " ".join(shard.groups[:parts]),
                self.mine.session,
                *(word for words in items for word in words),
            ),
        )

    def _release_call(
        self, batch: Batch, holds: Mapping[int, Hold | None], *, abandon: bool
    ) -> ScriptCall:
        """``lua/release.lua``."""
        numbers = {digest: hold.number for digest, hold in holds.items() if hold}
        items = ((_fingerprint(digest), numbers.get(digest, "")) for digest in batch.digests)
        return ScriptCall(
            scripts.RELEASE,
            self.hashes(batch.shard),
            (self.mine.session, int(abandon), *(word for words in items for word in words)),
        )


def _fingerprint(digest: int) -> bytes:
    return digest.to_bytes(16, "big")


def _answered(batches: list[Batch]) -> Generator[tuple[int, str]]:
    """The items that have an answer. Fewer answers than items: the rest was not reached."""
    for batch in batches:
        yield from zip(batch.digests, batch.answers or "", strict=False)
