"""Claims: leases on items. A claimed item is seen only once the work on it is done.

Each shard has a hash of claims, with an entry for each claimed item, and a hash of the sessions that hold them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, repeat

from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.claims import calls
from tbloom.bloom.claims.calls import CLAIMS, Claim
from tbloom.bloom.claims.session import Reserved, Session
from tbloom.bloom.claims.takeover import Abandoned, Searches, Sessions
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.bloom.hasher import shard_of
from tbloom.engine.batches import Knowledge
from tbloom.engine.flow import Call, Flow, request_all, text
from tbloom.engine.forks import ResetsInChild
from tbloom.engine.keys import by_shard
from tbloom.engine.pending import now_ms
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import TBloomError


class Claims(ResetsInChild):
    """The claims of one client, as flows (see ``bloom/verbs``). Items are given by their digests."""

    def __init__(self, dispatcher: FilterDispatcher, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        super().__init__()
        self.use(dispatcher)

    def reset(self) -> None:
        """Start a session without claims. A forked child has a session of its own."""
        self.session: Session = Session()
        #: Committed items whose claims other sessions had taken over, and of which nobody was warned.
        self.taken_over: deque[bytes] = deque()

    def use(self, dispatcher: FilterDispatcher) -> None:
        """Switch to this dispatcher, before anything is claimed."""
        self._dispatcher = dispatcher
        self._searches = Searches(dispatcher.config)
        self.session.shards.clear()

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.session.forget()

    @property
    def session_name(self) -> str:
        """The name under which this process claims items."""
        return self.session.name

    @property
    def is_used(self) -> bool:
        """True if the session has claims or calls to repeat, or shards know it."""
        return self.session.is_busy or bool(self.session.shards)

    @property
    def uncommitted(self) -> set[bytes]:
        """The items whose commits have failed, and must be sent again."""
        return {*chain.from_iterable(self.session.to_commit().values())}

    def claim(
        self,
        session: Session,
        reserved: Reserved,
        digests: Iterable[bytes],
        within: int,
        notes: Mapping[bytes, str],
        *,
        previous_owner: str = "",
    ) -> Flow[dict[bytes, Claim]]:
        """Claim the items that are new, and return the answer for each item. ``reserved`` is that of ``session.claiming``."""
        shards = self._shards_of(digests)
        again = previous_owner == session.name
        while not session.reserve(reserved, digests, shards, again=again):
            yield from self._look_up_lost(session, shards)
        answers = dict.fromkeys(digests, Claim.BUSY)  # for items that another caller here owns
        batches = self._dispatcher.batches(reserved.earlier, within)
        call_for = partial(
            calls.claim,
            session=session,
            reserved=reserved,
            ttl_ms=self._ttl_ms,
            previous_owner=previous_owner,
            notes=notes,
        )
        try:
            session.shards.update(batch.shard for batch in batches)
            yield from self._dispatcher.send(batches, call_for, Knowledge.STORED)
        finally:
            answered = _answers(batches)
            lost = [batch for batch in batches if batch.unanswered_since]
            session.lost += [(reserved, batch) for batch in lost]
            unknown = {digest for batch in lost for digest in batch.digests}
            not_sent = reserved.earlier.keys() - answered.keys() - unknown
            session.answered(reserved, answered | dict.fromkeys(not_sent, ""))
        return answers | {digest: CLAIMS[answer] for digest, answer in answered.items()}

    def _shards_of(self, digests: Iterable[bytes]) -> set[int]:
        return {*by_shard(digests, self._dispatcher.config.shards, shard_of)}

    def _look_up_lost(self, session: Session, shards: Container[int]) -> Flow[None]:
        """Look up calls of ``claim`` without a reply, so that the server does not execute them late."""
        lost = [each for each in [*session.lost] if each[1].shard in shards]
        if not lost:
            return
        found = yield from self._dispatcher.replay_all([batch for _, batch in lost])
        for each, answers in zip(lost, found, strict=True):
            reserved, batch = each
            # The server may have forgotten what became of an old call: then its claims are released in any case.
            is_old = now_ms() > (batch.unanswered_since or 0) + LANE_TTL_MS // 2
            known = repeat("1") if is_old else answers or repeat("")
            session.answered(reserved, dict(zip(batch.digests, known, strict=False)))
            with suppress(ValueError):  # another thread has looked it up
                session.lost.remove(each)

    def commit(self, digests: Iterable[bytes], age: int) -> Flow[list[bytes]]:
        """Add the items to the slice of this age, and end their claims, because the work on them is done.

        Return the items whose claims other sessions have taken over.
        """
        session, digests = self.session, dict.fromkeys(digests).keys()
        batches: list[FilterBatch] = []
        try:
            batches += self._dispatcher.batches(digests, age + 1, age)
            yield from self._dispatcher.send(
                batches, lambda batch: calls.commit(batch, session.name), Knowledge.STORED
            )
        except TBloomError:  # the next try would be refused, too
            raise
        except BaseException:  # also GeneratorExit, after an error in the driver
            session.commit_again(digests - _answers(batches).keys(), age)
            raise
        finally:
            taken_over = session.committed(_answers(batches))
            self.taken_over.extend(taken_over)
        return taken_over

    def release(self, digests: Iterable[bytes], how: str = "release") -> Flow[None]:
        """End claims of items that are not done. For ``how`` see ``lua/bloom/claims/release.lua``."""
        session, digests = self.session, [*digests]
        try:
            numbers = session.release(digests)
        except BaseException:  # an interrupt: the caller gives them up all the same
            session.release(digests)
            raise
        with suppress(TBloomError):  # claims are refused, but releases are not
            yield from self._look_up_lost(session, self._shards_of(numbers))
        yield from self._release(session, numbers, how)

    def release_dead(self, digests: Iterable[bytes]) -> Flow[None]:
        """End dead sessions' claims of these items, which are seen."""
        session, batches = self.session, self._dispatcher.batches(digests, 1)
        yield from self._dispatcher.send(
            batches,
            lambda batch: calls.release(self._keys(batch.shard), session, "dead", batch.digests),
            Knowledge.NONE,
        )

    def _release(self, session: Session, numbers: dict[bytes, int], how: str) -> Flow[None]:
        def call_for(batch: FilterBatch) -> Call:
            keys, of_batch = self._keys(batch.shard), map(numbers.__getitem__, batch.digests)
            return calls.release(keys, session, how, batch.digests, of_batch)

        batches = self._dispatcher.batches(numbers, 1)
        try:
            yield from self._dispatcher.send(batches, call_for, Knowledge.NONE)
        finally:
            session.released({digest: numbers[digest] for digest in _answers(batches)})

    def retry(self) -> Flow[None]:
        """Repeat commits and releases that ended in an error, and release claims whose answers were lost.

        A refused commit is dropped; its error is raised at the end.
        """
        yield from self._repeat_releases()
        session = self.session
        refused = None
        for age, digests in session.to_commit().items():
            # Batches are sent one by one, so that a full slice refuses only the items of one shard.
            for batch in self._dispatcher.batches(digests, age + 1, age):
                items = [*batch.digests]
                try:
                    yield from self.commit(items, age)
                except TBloomError as error:  # the next try would fail too
                    refused = error
                    session.drop_commits(items)
        if refused is not None:
            raise refused

    def _repeat_releases(self) -> Flow[None]:
        """Repeat releases that ended in an error, and release claims whose answers were lost.

        Claims with a note then wait to be taken over.
        """
        session = self.session
        with suppress(TBloomError):
            yield from self._look_up_lost(session, session.shards)
        if to_release := session.to_release():
            yield from self._release(session, to_release, "abandon")

    def heartbeat(self) -> Flow[None]:
        """Keep the session alive if it is in use, clean up after dead sessions, and repeat calls that ended in an error."""
        if self.is_used:
            session = self.session
            sessions = yield from self._beat(session, self._ttl_ms, session.shards)
            if any(of_shard.any_dead for of_shard in sessions.values()):
                yield from self._searches.clean_up(sessions)
            yield from self.retry()

    def sessions(self) -> Flow[dict[int, Sessions]]:
        """Return the sessions that each shard knows."""
        return self._beat(None, 0, range(self._dispatcher.config.shards))

    def take_over(self, limit: int, prefix: str) -> Flow[list[str]]:
        """Claim at most ``limit`` items that dead sessions have left with a note, and return the notes.

        Fewer notes mean that nothing more is left, except items on which this session works.
        """
        session, taken = self.session, dict[bytes, str]()
        # An earlier search may have claimed items, and got no answer. This search finds them again.
        yield from self._repeat_releases()
        try:
            sessions = yield from self.sessions()
            claim = partial(self._claim_abandoned, session, taken)
            yield from self._searches.take_over(sessions, claim, limit, prefix)
        except BaseException:  # also GeneratorExit; the caller does not get these claims
            session.release(taken)
            raise
        return [*taken.values()]

    def _claim_abandoned(
        self, session: Session, taken: dict[bytes, str], abandoned: dict[bytes, Abandoned]
    ) -> Flow[int]:
        """Claim items that dead sessions have left. Add the new ones to ``taken``, with their notes; return their number."""
        before = len(taken)
        for within in {claim.slices for claim in abandoned.values()}:
            notes = {key: claim.note for key, claim in abandoned.items() if claim.slices == within}
            with session.claiming() as reserved:
                answers = yield from self.claim(session, reserved, notes, within, notes)
                taken |= {key: notes[key] for key in notes if answers[key] is Claim.NEW}
            # The work on a seen item is done. Its session died before it ended the claim, or only seemed dead.
            if seen := [key for key, answer in answers.items() if answer is Claim.SEEN]:
                yield from self.release_dead(seen)
        return len(taken) - before

    def pause(self) -> Flow[None]:
        """End the session, unless it has claims. The next claim has another name, which a late copy of this call does not remove."""
        if not self.session.is_busy and not self.session.handed_over:
            yield from self.end()

    def end(self) -> Flow[None]:
        """End the session, and begin another one. Remaining claims are treated as a dead session's."""
        refused = None
        try:
            yield from self.retry()
        except TBloomError as error:
            refused = error
        finally:
            ended, session = self.session, Session()
            for age, digests in ended.to_commit().items():
                session.commit_again(digests, age)
            self.session = session
        leaves_claims = ended.is_busy or ended.handed_over
        yield from self._beat(ended, 0 if leaves_claims else -1, ended.shards)
        if refused is not None:
            raise refused

    def _beat(
        self, session: Session | None, ttl_ms: int, shards: Iterable[int]
    ) -> Flow[dict[int, Sessions]]:
        """Send a heartbeat of the session to shards, and return the sessions that they know."""
        name = session.name if session else ""
        view, shards = self._dispatcher.current_view(), [*shards]
        replies = yield from request_all(
            [
                calls.heartbeat(self._keys(shard), name, ttl_ms, view.expires_at(shard))
                for shard in shards
            ]
        )
        return {
            shard: Sessions(now, dict(zip(map(text, words[::2]), words[1::2], strict=True)))
            for shard, (_, (now, *words)) in zip(shards, replies, strict=True)
        }

    def _keys(self, shard: int) -> calls.Keys:
        keys = self._dispatcher.config.keys
        return keys.claims(shard), keys.sessions(shard)


def _answers(batches: list[FilterBatch]) -> dict[bytes, str]:
    """Return the answers by item. A batch may have fewer answers than items."""
    return {
        digest: answer
        for batch in batches
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False)
    }
