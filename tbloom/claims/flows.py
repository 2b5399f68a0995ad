"""Claims: leases on items. A claimed item is seen only once the work on it is done.

Each shard has a hash of claims, with an entry for each claimed item, and a hash of the sessions that hold them
(``lua/shared/claims.lua``). An item is claimed by ``claim``, or by ``take`` if it is left, and then ended by ``commit`` or
``release``. ``session.py`` knows for each item of this process how far that has come.

``heartbeat`` keeps the session alive, and repeats what ended in an error. If the server does not know the session any more,
``begin_anew`` goes on as another one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

from tbloom.bloom.batch import NO_LOOKS, FilterBatch
from tbloom.bloom.calls import commit
from tbloom.bloom.config import Config
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.bloom.hasher import shard_of
from tbloom.claims import calls
from tbloom.claims.calls import CLAIMS, Claim
from tbloom.claims.notes import History, Note, Taken, short
from tbloom.claims.packed import unpack
from tbloom.claims.record import LOST, Process, Record
from tbloom.claims.session import Moment, Reserved, Session
from tbloom.claims.stored import LEFT, SUSPECT
from tbloom.engine.batches import Knowledge
from tbloom.engine.flow import (
    CALLS_PER_YIELD,
    Call,
    Flow,
    Status,
    request,
    request_all,
    text,
)
from tbloom.engine.forks import ResetsInChild
from tbloom.engine.keys import by_shard
from tbloom.engine.pending import now_ms
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import TBloomError

logger: logging.Logger = logging.getLogger(__name__)

#: How long a session that has asked for work counts as waiting (ms): longer than any pause before it asks again.
_WAITS_MS = 30_000
#: The most items that one call takes: some 5 ms of the server's time.
_MOST_TAKEN = 400
#: The most calls with which a heartbeat buries dead sessions, so that the next one is in time.
_BURIES = 200
#: What crawlers have told is kept for so long at least, as claims are (ms).
_LEAST_MS = 3_600_000
#: Why a program's session has ended, as Scrapy says it.
_FINISHED = "finished"
_LOST = "%r: session %s goes on in place of session %s, whose %d claims are free for others: %s"
_SILENT = "it was silent for longer than session_ttl (%g s), or the server has lost it"
_EMPTY = "the server has lost the filter, with all that was left or pushed (did it come back empty, or was it cleared?)"


class Claims(ResetsInChild):
    """The claims of one client, as flows (see ``bloom/verbs``). Items are given by their digests."""

    def __init__(self, dispatcher: FilterDispatcher, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        #: Called when another session goes on in place of one that the server does not know any more, and whether it has lost the filter.
        self.when_lost: Callable[[bool], object] = lambda _: None
        #: Returns what a session tells of itself with each heartbeat; None: what any program does, once it takes items of a queue.
        self.record: Callable[[Session], Record] | None = None
        self._process = Process(ttl_ms / 1000)
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
        self.session.shards.clear()

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.session.forget()

    @property
    def is_used(self) -> bool:
        """True if the session has claims or calls to repeat, or shards know it."""
        return self.session.is_busy or bool(self.session.shards)

    @property
    def is_silent(self) -> bool:
        """True if other sessions may have taken this one for dead, as far as this process knows. A heartbeat finds out."""
        session = self.session
        return bool(session.known) and session.lives_since.is_over(self._ttl_ms / 1000)

    def claim(
        self,
        session: Session,
        reserved: Reserved,
        digests: Iterable[bytes],
        within: int,
        notes: Mapping[bytes, bytes],
        *,
        looks: Mapping[bytes, bytes],
    ) -> Flow[dict[bytes, Claim] | None]:
        """Claim the items that are new, and return the answer for each item. ``reserved`` is that of ``session.claiming``.

        ``looks``: what the filter is searched for in place of some items, by the items. Each is in the shard of its item.

        None: the session is lost; claim them again after ``begin_anew``.
        """
        yield from self._join(session)
        shards, since, lost = self._shards_of(digests), Moment.now(), list[int]()
        yield from self._reserve(session, reserved, digests, shards)
        answers = dict.fromkeys(digests, Claim.BUSY)  # for items that another caller here owns
        batches = self._dispatcher.batches(reserved.earlier, within)

        def call_for(batch: FilterBatch) -> Call:
            owner, ttl_ms = session.called_in(batch.shard), self._ttl_ms
            return calls.claim(
                batch, owner, ttl_ms=ttl_ms, notes=notes, looks=looks, reserved=reserved
            )

        try:
            session.shards.update(batch.shard for batch in batches)
            learn = partial(self._learn, lost)
            yield from self._dispatcher.send(batches, call_for, Knowledge.STORED, learn)
        finally:
            answered = _note_answers(session, reserved, batches, since)
        # A late answer to a call that began before the session was lost is nobody's, either.
        if lost or session.is_lost:
            return None
        return answers | {digest: CLAIMS[answer] for digest, answer in answered.items()}

    def _learn(self, lost: list[int], batch: FilterBatch, reply: Any) -> None:
        """Learn from a reply to a session. If that is lost, note the shard, and count the items as busy."""
        if reply[0] == Status.LOST:
            lost.append(batch.shard)
            batch.answers = "2" * len(batch.digests)
        else:
            self._dispatcher.learn(batch, reply)

    def _reserve(
        self, session: Session, reserved: Reserved, digests: Iterable[bytes], shards: Container[int]
    ) -> Flow[None]:
        while not session.reserve(reserved, digests, shards):
            yield from self._look_up_unanswered(session, shards)

    def _shards_of(self, digests: Iterable[bytes]) -> set[int]:
        return {*by_shard(digests, self._dispatcher.config.shards, shard_of)}

    def _look_up_unanswered(self, session: Session, shards: Container[int]) -> Flow[None]:
        """Look up calls of ``claim`` and ``take`` without a reply, so that the server does not execute them late."""
        while some := [each for each in [*session.unanswered] if each[1].shard in shards][
            :CALLS_PER_YIELD
        ]:
            found = yield from self._dispatcher.replay_all([batch for _, batch in some])
            for each, answers in zip(some, found, strict=True):
                reserved, batch = each
                # The server may have forgotten what became of an old call: then its claims are released in any case.
                is_old = now_ms() > (batch.unanswered_since or 0) + LANE_TTL_MS // 2
                known = repeat("1") if is_old else answers or repeat("")
                if batch.digests:
                    session.answered(reserved, dict(zip(batch.digests, known, strict=False)))
                else:  # a call of ``take``: the answers are the digests of the items that it took
                    session.to_give_back(reserved.call, _digests_in(answers))
                with suppress(ValueError):  # another thread has looked it up
                    session.unanswered.remove(each)

    def commit(self, digests: Iterable[bytes], age: int) -> Flow[list[bytes]]:
        """Add the items to the slice of this age, and end their claims, because the work on them is done.

        Return the items whose claims other sessions have taken over.
        """
        session, digests = self.session, dict.fromkeys(digests).keys()
        batches: list[FilterBatch] = []
        try:
            batches += self._dispatcher.batches(digests, age + 1, age)
            yield from self._dispatcher.send(
                batches,
                lambda batch: commit(batch, session.name, session.queue),
                Knowledge.STORED,
            )
            taken_over = session.committed(_answers(batches))
        except BaseException as error:  # also GeneratorExit, after an error in the driver
            if not isinstance(error, TBloomError):  # the next try would be refused, too
                # Meanwhile, another session may have begun.
                self.session.commit_again(digests - _answers(batches).keys(), age)
            # An interrupt may have come before all leases had ended.
            self.taken_over.extend(session.committed(_answers(batches)))
            raise
        self.taken_over.extend(taken_over)
        return taken_over

    def release(
        self,
        digests: Iterable[bytes],
        *,
        leaves: bool = False,
        hosts: calls.Hosts | None = None,
    ) -> Flow[None]:
        """End claims of items that are not done. If it ``leaves`` items, those with a note are left to any session.

        ``hosts``: see ``calls.release``. The filter has one shard then.
        """
        session, digests = self.session, [*digests]
        try:
            numbers = session.release(digests)
        except BaseException:  # an interrupt: the caller gives them up all the same
            session.release(digests)
            raise
        with suppress(TBloomError):  # claims are refused, but releases are not
            yield from self._look_up_unanswered(session, self._shards_of(numbers))
        yield from self._release(session, numbers, leaves=leaves, hosts=hosts)

    def _release(
        self,
        session: Session,
        numbers: dict[bytes, int],
        *,
        leaves: bool,
        hosts: calls.Hosts | None = None,
    ) -> Flow[None]:
        def call_for(batch: FilterBatch) -> Call:
            keys, items = calls.keys_of(batch), batch.digests
            return calls.release(keys, session, numbers, items, leaves=leaves, hosts=hosts)

        batches = self._dispatcher.batches(numbers, 1)
        if hosts and not batches:
            batches = [FilterBatch([], 0)]
        try:
            yield from self._dispatcher.send(
                batches, call_for, Knowledge.NONE, self._dispatcher.learn
            )
        finally:
            session.released({digest: numbers[digest] for digest in _answers(batches)})

    def note_history(self, histories: Mapping[bytes, History]) -> Flow[None]:
        """Change the histories of items that callers here have claimed. Claims without a note stay as they are."""
        yield from self._note(self.session, histories)

    def _note(self, session: Session, histories: Mapping[bytes, History]) -> Flow[dict[bytes, str]]:
        """Do what ``note_history`` does; return "1" for each item whose history has changed."""
        call, digests = session.noting(histories)

        def call_for(batch: FilterBatch) -> Call:
            return calls.note_history(calls.keys_of(batch), session, call, batch.digests, histories)

        batches = self._dispatcher.batches(digests, 1)
        yield from self._dispatcher.send(batches, call_for, Knowledge.NONE, self._dispatcher.learn)
        return _answers(batches)

    def fail(self, digest: bytes, history: History) -> Flow[None]:
        """Hold an item with its failure, if callers here have claimed it, until the session ends."""
        session = self.session
        answers = yield from self._note(session, {digest: history})
        if answers.get(digest) == "1":
            session.fail(digest, history.reason)

    def push(
        self,
        digests: Iterable[bytes],
        within: int,
        notes: Mapping[bytes, bytes],
        *,
        looks: Mapping[bytes, bytes] = NO_LOOKS,
        again: bool = False,
    ) -> Flow[dict[bytes, Claim]]:
        """Leave the items that are new to any session, and return the answer for each item. ``again``: also those that were seen."""
        batches = self._dispatcher.batches(digests, within)
        call_for = partial(
            calls.claim,
            owner=LEFT,
            ttl_ms=self._ttl_ms,
            notes=notes,
            looks=looks,
            reserved=Reserved(),
            again=again,
        )
        yield from self._dispatcher.send(
            batches, call_for, Knowledge.STORED, self._dispatcher.learn
        )
        return {digest: CLAIMS[answer] for digest, answer in _answers(batches).items()}

    def retry(self) -> Flow[None]:
        """Repeat commits and releases that ended in an error, and release claims whose answers were lost.

        A refused commit is dropped; its error is raised at the end.
        """
        session = self.session
        yield from self._repeat_releases(session)
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

    def _repeat_releases(self, session: Session) -> Flow[None]:
        """Repeat releases that ended in an error, and release claims whose answers were lost.

        Items with a note are left to any session.
        """
        with suppress(TBloomError):
            yield from self._look_up_unanswered(session, session.shards)
        if to_release := session.to_release():
            yield from self._release(session, to_release, leaves=True)

    def heartbeat(self) -> Flow[None]:
        """Keep the session alive if it is in use, bury dead sessions, and repeat calls that ended in an error."""
        if self.is_used:
            yield from bury(self._dispatcher.config, (yield from self.live()), _BURIES)
            yield from self.retry()

    def live(self) -> Flow[list[int]]:
        """Keep the session alive, or begin another one if the server does not know it any more. Return the shards with dead sessions."""
        session, since, known = self.session, Moment.now(), {*self.session.known}
        replies = yield from self._beat(session, self._ttl_ms)
        lost = [shard for shard, (_, _, is_known) in replies.items() if not is_known]
        if known.isdisjoint(lost):
            session.lives_since = since
        else:
            yield from self.begin_anew(session)
        session = self.session
        yield from self._join(session)
        return _with_dead(replies)

    def begin_anew(self, session: Session) -> Flow[None]:
        """Go on as another session, because the server does not know this one any more. It has the same queue.

        Its claims are others', or left. What another shard still has of them is left, too.
        """
        known, keys = session.known.copy(), self._dispatcher.config.keys
        layouts = yield from request_all([Call(("HGET", keys.state(n), "layout")) for n in known])
        is_empty = any(
            text(layout or b"")[: len(generation)] != generation
            for layout, generation in zip(layouts, known.values(), strict=True)
        )
        successor, is_first = session.follow(is_lost=True)
        if self.session is session:
            self.session = successor
        if is_first:
            if (claimed := len(successor.inherited)) or is_empty:
                why = _EMPTY if is_empty else _SILENT % (self._ttl_ms / 1000)
                logger.warning(
                    _LOST, self._dispatcher.config.name, successor.name, session.name, claimed, why
                )
            self.when_lost(is_empty)
        session.release(session.claimed)
        yield from self._repeat_releases(session)
        yield from bury(
            self._dispatcher.config, _with_dead((yield from self._beat(session, 0, LOST)))
        )

    def _join(self, session: Session) -> Flow[None]:
        """Let a session that follows another one join the sessions of its queue."""
        if session.queue and not session.known:
            with session.claiming() as reserved:
                yield from self._take(session, reserved, 0, session.queue, idle=False)

    def take(self, limit: int, queue: str, *, idle: bool, joins: str | None) -> Flow[Taken]:
        """Claim at most ``limit`` left items of the queue.

        ``idle``: the session has nothing else to do, and waits for items if none is left. ``joins``: the queue whose items it takes
        from now on; None: as before.
        """
        while True:
            session, wanted = self.session, short(queue, 8)
            if joins is not None:
                session.queue, session.queue_name = short(joins, 8), joins
            # An earlier call may have taken items, and got no answer. They are left again.
            yield from self._repeat_releases(session)
            with session.claiming() as reserved:
                found = yield from self._take(session, reserved, limit, wanted, idle=idle)
                if dead := [shard for shard, (_, _, is_dead, *_) in found.items() if is_dead]:
                    yield from bury(self._dispatcher.config, dead)
                    if not any(words[3:] for words in found.values()):
                        found = yield from self._take(session, reserved, limit, wanted, idle=idle)
                if found:
                    return (yield from self._taken(session, found, limit, queue))
            yield from self.begin_anew(session)

    def _taken(
        self, session: Session, found: dict[int, list[Any]], limit: int, queue: str
    ) -> Flow[Taken]:
        """Return what the shards have given, and give back what the session can't keep."""
        words = [word for _, _, _, *rest in found.values() for word in rest]
        notes = {
            bytes.fromhex(text(digest)): Note(
                unpack(note), queue, deaths=int(deaths), failures=int(failures or 0)
            )
            for digest, deaths, failures, note in zip(*(words[n::4] for n in range(4)), strict=True)
        }
        # Without a note, the work is done. A suspect is taken alone, though several shards have given items.
        whole = [key for key in notes if notes[key].text]
        kept = ([key for key in whole if notes[key].deaths < SUSPECT] or whole[:1])[:limit]
        if given_back := notes.keys() - kept:
            yield from self._release(session, session.release(given_back), leaves=True)
        session.taken += len(kept)
        waiting, others = (max(reply[i] for reply in found.values()) for i in (0, 1))
        return Taken([notes[key] for key in kept], waiting, others)

    def _take(
        self, session: Session, reserved: Reserved, limit: int, queue: str, *, idle: bool
    ) -> Flow[dict[int, list[Any]]]:
        """Take from all shards, and return each shard's reply. The items are the session's. No reply: the session is lost."""
        shards, since, lost = range(self._dispatcher.config.shards), Moment.now(), list[int]()
        if not reserved.call:
            yield from self._reserve(session, reserved, (), shards)
        session.shards.update(shards)
        found: dict[int, list[Any]] = {}

        def learn(batch: FilterBatch, reply: Any) -> None:
            if reply[0] == Status.OK:
                found[batch.shard] = reply[1]
                session.took(reserved, map(bytes.fromhex, map(text, reply[1][3::4])))
                session.confirm(batch.shard, batch.generation, since)
                batch.answers = ""
            else:
                self._learn(lost, batch, reply)

        call_for = partial(
            calls.take,
            session=session,
            call=reserved.call,
            ttl_ms=self._ttl_ms,
            limit=min(-(-limit // len(shards)), _MOST_TAKEN),
            queue=queue,
            waits_ms=_WAITS_MS if idle else 0,
        )
        batches = [FilterBatch([], shard) for shard in shards]
        try:
            yield from self._dispatcher.send(batches, call_for, Knowledge.STORED, learn)
        finally:
            session.unanswered += [(reserved, batch) for batch in batches if batch.unanswered_since]
        if lost or session.is_lost:
            return {}
        session.lives_since = since
        return found

    def end(self) -> Flow[None]:
        """End the session, and begin another one. Items with a note are left. If calls fail, the claims are a dead session's."""
        refused = None
        try:
            yield from self.retry()
            yield from self.release(self.session.claimed, leaves=True)
        except TBloomError as error:
            refused = error
        finally:
            ended = self.session
            self.session, _ = ended.follow()
        # A crawl's record says itself how it has ended.
        why = "" if self.record else _FINISHED
        replies = yield from self._beat(ended, 0 if ended.is_busy else -1, why)
        if ended.is_busy:
            yield from bury(self._dispatcher.config, _with_dead(replies))
        if refused is not None:
            raise refused

    def _beat(self, session: Session, ttl_ms: int, ended: str = "") -> Flow[dict[int, Any]]:
        """Send a heartbeat of the session to its shards, and return their replies. It tells why the session has ``ended``, if so."""
        view, shards = self._dispatcher.current_view(), [*session.shards]
        keys = partial(calls.keys_in, self._dispatcher.config)
        beats = [
            calls.heartbeat(keys(shard), session.name, ttl_ms, view.expires_at(shard))
            for shard in shards
        ]
        # In the same round trip.
        tells = beats and (self.record or session.queue)
        told = [self._telling(session, ended)] if tells else []
        replies = yield from request_all([*beats, *told])
        return dict(zip(shards, replies, strict=False))

    def _telling(self, session: Session, ended: str) -> Call:
        key, expires = self._dispatcher.config.keys.crawlers(), self._records_expire()
        record = (self.record or self._process.record)(session)
        return calls.tell(key, session.name, replace(record, ended=ended or record.ended), expires)

    def _records_expire(self) -> int:
        return max(self._dispatcher.current_view().expires_at(0), now_ms() + _LEAST_MS)

    def first_project(self, project: str) -> Flow[str]:
        """Return the project whose crawlers were the first ones of this filter; this one, if there were none."""
        key, expires = self._dispatcher.config.keys.crawlers(), self._records_expire()
        told = calls.tell(key, "", Record(project=project), expires)
        [[_, first]] = yield from request([told])
        return text(first)


def bury(config: Config, shards: Iterable[int], most: int | None = None) -> Flow[None]:
    """Leave the claims of dead sessions in these shards to any session, in at most so many calls. Further calls continue."""
    for shard in shards:
        more, made = True, 0
        while more and made != most:
            [[_, more]] = yield from request([calls.bury(calls.keys_in(config, shard))])
            made += 1


def _note_answers(
    session: Session, reserved: Reserved, batches: list[FilterBatch], since: Moment
) -> dict[bytes, str]:
    """Return the answers to a call of ``claim``, and note them in the session, which lives since then. Calls without a reply are kept."""
    answered = _answers(batches)
    unanswered = [batch for batch in batches if batch.unanswered_since]
    session.unanswered += [(reserved, batch) for batch in unanswered]
    unknown = {digest for batch in unanswered for digest in batch.digests}
    not_sent = reserved.earlier.keys() - answered.keys() - unknown
    session.answered(reserved, answered | dict.fromkeys(not_sent, ""))
    for batch in batches:
        if "1" in (batch.answers or ""):
            session.confirm(batch.shard, batch.generation, since)
    return answered


def _with_dead(replies: Mapping[int, Any]) -> list[int]:
    """Return the shards whose replies to a heartbeat say that sessions are dead."""
    return [shard for shard, (_, dead, _) in replies.items() if dead]


def _answers(batches: list[FilterBatch]) -> dict[bytes, str]:
    """Return the answers by item. A batch may have fewer answers than items."""
    return {
        digest: answer
        for batch in batches
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False)
    }


def _digests_in(hexed: str) -> list[bytes]:
    """Return the digests in the answers that a lane keeps of ``take``. The number of an item's deaths follows each digest."""
    return [bytes.fromhex(hexed[at : at + 32]) for at in range(0, len(hexed), 33)]
