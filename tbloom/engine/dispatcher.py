"""Calls with tokens, corrected and repeated until each item has its answer; answers that get lost stay pending."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from operator import attrgetter
from typing import Any

from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    MAX_CORRECTIONS,
    Call,
    Flow,
    Status,
    chunks,
    raise_first,
    text,
    together,
    too_many_corrections,
)
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.pending import (
    MOVED,
    Answers,
    Batch,
    PendingAnswers,
    answers_of,
    now_ms,
)
from tbloom.engine.tokens import LANE_TTL_MS, NO_LANE, LanePool
from tbloom.errors import TBloomError

CLOCK_CHANGED = "the server's clock left the current slice"
#: Takes the reply to a batch's call: notes its answers, or corrects what the client knows of the store.
Learn = Callable[[Batch, Any], None]


class Agreement(IntEnum):
    """What a call needs of the stored parameters."""

    #: Nothing.
    NONE = 0
    #: They are the client's, if there are any.
    COMPARED = 1
    #: They are stored, and are the client's.
    STORED = 2


class Dispatcher(BeginsAnew):
    """One client's calls to the store ``name``."""

    #: What makes corrections necessary.
    _change = CLOCK_CHANGED

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def begin(self) -> None:
        """A forked process becomes another client, and leaves pending answers to its parent."""
        self.pending_answers: PendingAnswers = PendingAnswers()
        self.lanes: LanePool = LanePool()

    def send_once(self, batches: list[Batch], call: Callable[[Batch], Call]) -> Flow[None]:
        """Send batches with a token for each."""
        for batch in batches:
            batch.lane = self.lanes.take()
        yield from self.send(batches, call, Agreement.STORED)
        for batch in batches:
            self.lanes.free.append(batch.lane)

    def send(
        self,
        batches: list[Batch],
        call: Callable[[Batch], Call],
        agreement: Agreement = Agreement.COMPARED,
        learn: Learn | None = None,
    ) -> Flow[None]:
        """Send each batch until its items have their answers.

        Items that need a further call move to batches of their own, which are added to the list. ``learn`` is called in
        place of ``_learn``.
        """
        learn = learn or self._learn
        if len(batches) == 1:
            return self._send(batches[0], batches, call, agreement, learn)
        return self._send_together(batches, call, agreement, learn)

    def _send_together(
        self,
        batches: list[Batch],
        call: Callable[[Batch], Call],
        agreement: Agreement,
        learn: Learn,
    ) -> Flow[None]:
        for some in chunks([*batches], CALLS_AT_ONCE):
            # One batch of each shard comes first, so that not all of them begin the shard.
            firsts = {batch.shard: batch for batch in reversed(some)}
            yield from together(*[self._prepare(batch, agreement) for batch in firsts.values()])
            yield from together(
                *[self._send(batch, batches, call, agreement, learn) for batch in some]
            )

    def _send(
        self,
        first: Batch,
        batches: list[Batch],
        call: Callable[[Batch], Call],
        agreement: Agreement,
        learn: Learn,
    ) -> Flow[None]:
        """Send one batch until its items have their answers."""
        own, corrections = [first], 0
        for batch in own:
            while batch.answers is None:
                if corrections > MAX_CORRECTIONS:
                    raise too_many_corrections(self._name, self._change)
                corrections += 1
                step = self._next_step(batch, agreement)
                if step is not None:
                    yield from step
                    continue
                made = (call(batch),)
                batch.sent = batch.sent or now_ms()
                [reply] = replies = yield made
                if isinstance(reply, Exception):  # an earlier copy may have been executed
                    yield from raise_first(made, replies)
                try:
                    learn(batch, reply)
                except TBloomError:
                    batch.sent = 0
                    raise
                batch.sent = 0  # last, for the case of an interrupt
            if batch.answers.strip(MOVED):
                corrections = 0
            if rest := self._rest_of(batch):
                own.append(rest)
                batches.append(rest)

    def _prepare(self, batch: Batch, agreement: Agreement) -> Flow[None]:
        """Send what comes before a batch's call."""
        for _ in range(MAX_CORRECTIONS):
            step = self._next_step(batch, agreement)
            if step is None:
                return
            yield from step
        raise too_many_corrections(self._name, self._change)

    def add(
        self, digests: list[Any], batches: list[Batch], call: Callable[[Batch], Call]
    ) -> Flow[Answers]:
        """Which of the items in these batches are new? An item without an answer is seen."""
        pending = self.pending_answers
        try:
            if pending.exist:
                yield from self.fetch_lost(digests)
                pending.check_room(self._name, digests)
            # Those that are known to be new are sent too: the store may have forgotten them since.
            try:
                for batch in batches:
                    batch.lane = self.lanes.take()
                yield from self.send(batches, call, Agreement.STORED)
                for batch in batches:
                    self.lanes.free.append(batch.lane)
            except TBloomError:
                # Refused from now on, after a reconfigure() for example: this is the last time to tell.
                if not pending.knows(digests):
                    raise
            if pending.exist:
                # A reply that was late may have answered an earlier one since.
                for batch in filter(attrgetter("answers"), batches):
                    pending.note_generation(batch.shard, batch.generation)
            return answers_of(batches) | pending.take_new(digests)
        except BaseException:  # GeneratorExit too, after a cancellation
            self.keep(batches)
            raise

    def fetch_lost(self, digests: list[Any]) -> Flow[None]:
        """Asks for lost answers: to these items, and the oldest where there are too many."""
        lost = self.pending_answers.lost(digests)
        asked = [Batch([], batch.shard, batch.lane) for batch in lost]
        # A refusal, of changed parameters for example, meets the present call too.
        with suppress(TBloomError):
            yield from self.send(asked, self.last_call, Agreement.NONE, self._learn_last)
        for batch, again in zip(lost, asked, strict=True):
            if again.answers is not None:
                self.pending_answers.settle(batch, again.answers)

    def keep_new(self, digest: Any, batch: Batch) -> None:
        """Keeps a new item whose caller has gone. What the client knows of the store may have changed since the answer."""
        kept = replace(batch, digests=[digest], answers="1")
        self.pending_answers.keep(kept, self._lasts(batch))

    def keep(self, batches: Iterable[Batch]) -> None:
        """Keeps the batches that were sent."""
        for batch in batches:
            if batch.sent or batch.answers is not None:
                self.pending_answers.keep(batch, self._lasts(batch))

    def _lasts(self, batch: Batch) -> int:
        """How long (ms) the items that a batch has added are remembered."""
        return batch.ttl or LANE_TTL_MS

    @abstractmethod
    def _next_step(self, batch: Batch, agreement: Agreement) -> Flow[None] | None:
        """Return the next step before a batch's call: a flow that brings the store, or what is known of it, closer to what
        the call needs. Return None if the call can be made."""

    @abstractmethod
    def last_call(self, batch: Batch) -> Call:
        """The last call with a token whose answers are lost. The server answers as it did, if it has executed an earlier
        one; else it does nothing, and will not execute any that comes late."""

    @abstractmethod
    def _learn(self, batch: Batch, reply: Any) -> None:
        """Note a batch's answers. Where the reply has none, correct what the client knows of the store."""

    def _learn_last(self, batch: Batch, reply: Any) -> None:
        """Take the reply to a ``last_call``."""
        status, payload, *_ = reply
        if status in (Status.OK, Status.UNKNOWN):  # unknown: no call would be executed
            batch.answers = text(payload)
        else:
            self._learn(batch, reply)

    @abstractmethod
    def _rest_of(self, batch: Batch) -> Batch | None:
        """Return a batch of the items that need a further call, if there are any."""

    def _batch_of_rest(self, batch: Batch, digests: list[Any]) -> Batch:
        """A batch like this one for the digests."""
        lane = NO_LANE if batch.lane is NO_LANE else self.lanes.take()
        return replace(
            batch,
            digests=digests,
            lane=lane,
            answers=None,
            times=(),
            sent=0,
            compared=False,
            rest=(),
        )

    def _answers(self, batch: Batch, payload: Any, *, complete: bool = False) -> str:
        """A character for each item; unless ``complete``, for the first ones at least. Numbers are those of characters."""
        if type(payload) is list:
            payload = "".join(map(chr, payload))
        answers = payload if isinstance(payload, str) else payload.decode(errors="replace")
        wanted = len(batch.digests)
        if len(answers) > wanted or (complete and len(answers) < wanted):
            raise TBloomError(
                f"{self._name!r}: {len(answers)} answers to {wanted} items; "
                "has another program written to the keys of its lanes?"
            )
        return answers
