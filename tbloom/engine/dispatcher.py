"""Calls with tokens, corrected and repeated until each item has its answer; answers that get lost stay pending."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    MAX_CORRECTIONS,
    Call,
    Flow,
    Status,
    chunks,
    raise_first,
    text,
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

T = TypeVar("T")
CLOCK_CHANGED = "the server's clock left the current slice"


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
        """``send`` with a token for each batch."""
        lanes = self.lanes
        for batch in batches:
            if batch.lane is NO_LANE:
                batch.lane = lanes.take()
        yield from self.send(batches, call, store=True)
        lanes.free.extend([batch.lane for batch in batches])

    def send(
        self,
        batches: list[Batch],
        call: Callable[[Batch], Call],
        *,
        store: bool | None = False,
        accept: Callable[[Batch, Any], bool] | None = None,
    ) -> Flow[None]:
        """Sends a call for each batch until each item has its answer; adds batches of items that must be sent again.

        ``store``: parameters are stored where there are none; None: the parameters don't matter. ``accept``: takes a
        reply in place of ``_accept``.
        """
        for asked in chunks([*batches], CALLS_AT_ONCE):
            unanswered, corrections = [*asked], 0
            while unanswered:
                if corrections > MAX_CORRECTIONS:
                    raise too_many_corrections(self._name, self._change)
                corrections += 1
                known = len(unanswered)
                is_prepared = yield from self._prepare(unanswered, store=store)
                batches += unanswered[known:]
                if not is_prepared:
                    continue
                calls = {batch: call(batch) for batch in unanswered}
                left = yield from self._deliver(calls, accept or self._accept)
                batches += [batch for batch in left if batch not in calls]
                if any((batch.answers or "").strip(MOVED) for batch in calls):
                    corrections = 0
                unanswered = left

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
                yield from self.send_once(batches, call)
            except TBloomError:
                # Refused from now on, after a reconfigure() for example: this is the last time to tell.
                if not pending.knows(digests):
                    raise
            for batch in batches:
                if batch.answers:  # a reply that was late may have answered an earlier one since
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
            yield from self.send(asked, self.last_call, store=None, accept=self._accept_last)
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
    def _prepare(self, batches: list[Batch], *, store: bool | None) -> Flow[bool]:
        """Comes before the batches' calls; False: once more. May split batches, and adds the further ones to the list."""

    @abstractmethod
    def last_call(self, batch: Batch) -> Call:
        """The last call with a token whose answers are lost. The server answers as it did, if it has executed an earlier
        one; else it does nothing, and will not execute any that comes late."""

    @abstractmethod
    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: the call must be made anew."""

    def _accept_last(self, batch: Batch, reply: Any) -> bool:
        """Takes the reply to a ``last_call``."""
        status, payload, *_ = reply
        if status in (Status.OK, Status.UNKNOWN):  # unknown: no call would be executed
            batch.answers = text(payload)
            return True
        return self._accept(batch, reply)

    @abstractmethod
    def _rest_of(self, batch: Batch) -> list[Batch]:
        """A batch of the items that got no answer, if there are any."""

    def _deliver(
        self, made: Mapping[Batch, Call], accept: Callable[[Batch, Any], bool]
    ) -> Flow[list[Batch]]:
        """Sends a call for each batch; returns the batches that must be sent next."""
        batches, calls = [*made], [*made.values()]
        for batch in batches:
            batch.sent = batch.sent or now_ms()
        replies = yield calls
        left, errors = list[Batch](), list[TBloomError]()
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, Exception):
                continue  # an earlier copy may have been executed
            try:
                left += self._rest_of(batch) if accept(batch, reply) else [batch]
            except TBloomError as error:  # raised after all replies were accepted
                errors.append(error)
            batch.sent = 0  # last, for the case of an interrupt
        yield from raise_first(calls, replies)
        if errors:
            raise errors[0]
        return left

    def _batch_of_rest(self, batch: Batch, digests: list[Any]) -> Batch:
        """A batch like this one for the digests."""
        lane = NO_LANE if batch.lane is NO_LANE else self.lanes.take()
        return replace(
            batch, digests=digests, lane=lane, answers=None, times=(), sent=0, compared=False
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
