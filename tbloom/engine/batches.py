"""Calls with tokens. A call is corrected and repeated until each of its items has an answer. Lost answers stay pending."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

from tbloom.engine.flow import (
    CALLS_PER_YIELD,
    MAX_CORRECTIONS,
    Call,
    Flow,
    Status,
    chunks,
    raise_explained,
    text,
    together,
    too_many_corrections,
)
from tbloom.engine.forks import ResetsInChild
from tbloom.engine.pending import (
    MOVED,
    Answers,
    Batch,
    PendingAnswers,
    answers_of,
    now_ms,
)
from tbloom.engine.tokens import NO_LANE, LanePool
from tbloom.errors import TBloomError

CLOCK_CHANGED = "the server's clock left the current slice"
B = TypeVar("B", bound=Batch)
T = TypeVar("T")
V = TypeVar("V")
F = TypeVar("F", bound=TBloomError)


class Knowledge(IntEnum):
    """What a client knows of the stored parameters. A call requires one of these."""

    #: Nothing.
    NONE = 0
    #: If parameters are stored, they equal the client's.
    COMPARED = 1
    #: Parameters are stored, and equal the client's.
    STORED = 2


def seen_again(_: object) -> None:
    """Return the answer of the next caller that adds the same item."""


def unless_full(
    items: dict[T, V],
    full: type[F],
    add: Callable[[dict[T, V]], Flow[dict[T, Any]]],
    contains: Callable[[dict[T, V]], Flow[Mapping[T, Any]]],
    is_refused: Callable[[T, F], bool] = lambda *_: True,
) -> Flow[dict[T, Any]]:
    """Add items of several callers. If the store is full, the answer of each new item is the error."""
    refused = dict[T, Any]()
    while True:
        wanted = {item: value for item, value in items.items() if item not in refused}
        try:
            return refused | (yield from add(wanted))
        except full as error:
            if len(items) == 1:
                raise
            found = yield from contains(wanted)
            new = {item: error for item in wanted if not found[item] and is_refused(item, error)}
            if not new:
                raise
            refused |= new


class Dispatcher(ResetsInChild, Generic[B]):
    """One client's calls to the store ``name``."""

    #: The class of its batches.
    _BATCH: type[B]

    #: The cause of corrections, for the error about too many.
    _correction_cause = CLOCK_CHANGED

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def reset(self) -> None:
        """Start with new lanes and no pending answers.

        A forked child is another client: the old lanes and pending answers stay its parent's.
        """
        self.pending_answers: PendingAnswers = PendingAnswers()
        self.lanes: LanePool = LanePool()

    def send(
        self,
        batches: list[B],
        call: Callable[[B], Call],
        required: Knowledge = Knowledge.COMPARED,
        learn: Callable[[B, Any], None] | None = None,
    ) -> Flow[None]:
        """Send each batch until its items have their answers.

        With ``STORED``, each batch gets a token of its own. Items that need another call move to
        new batches, which are appended to ``batches``. ``learn`` replaces ``_learn``.
        """
        learn = learn or self._learn
        if required is Knowledge.STORED:
            for batch in batches:
                batch.lane = self.lanes.take()
        if len(batches) == 1:
            return self._send(batches[0], batches, call, required, learn)
        return self._send_together(batches, call, required, learn)

    def _send_together(
        self,
        batches: list[B],
        call: Callable[[B], Call],
        required: Knowledge,
        learn: Callable[[B, Any], None],
    ) -> Flow[None]:
        for some in chunks([*batches], CALLS_PER_YIELD):
            # One batch of each shard is prepared first, so that the shard's other batches need no such steps.
            firsts = {batch.shard: batch for batch in reversed(some)}
            yield from together(*[self._prepare(batch, required) for batch in firsts.values()])
            yield from together(
                *[self._send(batch, batches, call, required, learn) for batch in some]
            )

    def _send(
        self,
        first: B,
        batches: list[B],
        call: Callable[[B], Call],
        required: Knowledge,
        learn: Callable[[B, Any], None],
    ) -> Flow[None]:
        """Send one batch until its items have their answers."""
        own, corrections = [first], 0
        for batch in own:
            while batch.answers is None:
                if corrections > MAX_CORRECTIONS:
                    raise too_many_corrections(self._name, self._correction_cause)
                corrections += 1
                step = self._next_step(batch, required)
                if step is not None:
                    yield from step
                    continue
                made = call(batch)
                batch.unanswered_since = batch.unanswered_since or now_ms()
                [reply] = yield (made,)
                if isinstance(reply, Exception):
                    # unanswered_since stays set: an earlier copy may have been executed.
                    yield from raise_explained(made, reply)
                try:
                    learn(batch, reply)
                except TBloomError:
                    batch.unanswered_since = None
                    raise
                batch.unanswered_since = (
                    None  # only now, so that an interrupt leaves the batch pending
                )
            if required is Knowledge.STORED:
                self.lanes.free.append(batch.lane)
            if batch.answers.strip(MOVED):
                corrections = 0
            if rest := self._rest_of(batch):
                own.append(rest)
                batches.append(rest)

    def _prepare(self, batch: B, required: Knowledge) -> Flow[None]:
        """Run the flows that must precede a batch's call."""
        for _ in range(MAX_CORRECTIONS):
            step = self._next_step(batch, required)
            if step is None:
                return
            yield from step
        raise too_many_corrections(self._name, self._correction_cause)

    def add(self, batches: list[B], call: Callable[[B], Call]) -> Flow[Answers]:
        """Send batches that add these items, and return their answers. An item without an answer is seen."""
        pending = self.pending_answers
        try:
            if pending.lost:
                yield from self.look_up_lost(batches)
            # Items that are known to be new are sent too, because the store may have forgotten them since.
            yield from self.send(batches, call, Knowledge.STORED)
            answers = answers_of(batches)
            if pending.new:
                answers |= pending.take(pending.known_new(batches))
        except BaseException:  # also GeneratorExit, after an error in the driver or a cancellation
            self.keep(batches)
            raise
        return answers

    def look_up_lost(self, batches: list[B]) -> Flow[None]:
        """Look up the lost answers of earlier calls to the shards of these batches."""
        pending, shards = self.pending_answers, {batch.shard for batch in batches}
        # If the server refuses a replay, because of changed parameters for example, it will refuse the caller's call, too.
        with suppress(TBloomError):
            # Thousands of tasks may look up the same ones at once: what one has found, the others need not ask for.
            while lost := pending.lost_in(shards)[:CALLS_PER_YIELD]:
                found = yield from self.replay_all(lost)
                for batch, answers in zip(lost, found, strict=True):
                    pending.found(batch, answers)

    def replay_all(self, lost: Iterable[Batch]) -> Flow[list[str]]:
        """Return the answers to lost calls; "" if the server has not executed one, and will not."""
        replays = [self._BATCH([], batch.shard, batch.lane) for batch in lost]
        yield from self.send(replays, self.replay, Knowledge.NONE, self._learn_replayed)
        return [replay.answers or "" for replay in replays]

    def keep_new(self, digest: Any, batch: B | None) -> None:
        """Keep an item whose task was cancelled, if it is new.

        ``batch`` is the batch that found it new. The client's view of the store may have changed since.
        """
        if batch is None:
            return
        kept = replace(batch, digests=[digest], answers="1")
        self.pending_answers.keep(kept, self._lifetime_ms(batch))

    def keep(self, batches: Iterable[B]) -> None:
        """Keep the batches that were sent, because their answers do not reach the caller."""
        for batch in batches:
            if batch.unanswered_since or batch.answers is not None:
                self.pending_answers.keep(batch, self._lifetime_ms(batch))

    @abstractmethod
    def _next_step(self, batch: B, required: Knowledge) -> Flow[None] | None:
        """Return a flow that must precede the batch's call, or None if the call can be made.

        The flow changes the store, or updates the client's view of it. Further flows may be needed after it.
        """

    @abstractmethod
    def replay(self, batch: B) -> Call:
        """Return a call with the batch's token and without items.

        If the server has executed the batch's call, it returns the answers. If not, it voids the token, so that a late copy
        of the call is not executed.
        """

    @abstractmethod
    def _lifetime_ms(self, batch: B) -> int:
        """Return how long (ms) the items that a batch has added are remembered."""

    @abstractmethod
    def _learn(self, batch: B, reply: Any) -> None:
        """Note a batch's answers. If the reply has none, correct the client's view of the store."""

    def _learn_replayed(self, batch: B, reply: Any) -> None:
        """Note the answers in the reply to a ``replay``."""
        status, payload, *_ = reply
        if status in (Status.OK, Status.UNKNOWN):  # with UNKNOWN, a late copy would be refused, too
            batch.answers = text(payload)
        else:
            self._learn(batch, reply)

    @abstractmethod
    def _rest_of(self, batch: B) -> B | None:
        """Return a batch of the items that need a further call, or None."""

    def _batch_of_rest(self, batch: B, digests: list[Any]) -> B:
        """Return a batch like this one, for these digests, with a token of its own."""
        lane = NO_LANE if batch.lane is NO_LANE else self.lanes.take()
        return replace(
            batch, digests=digests, lane=lane, answers=None, unanswered_since=None, rest=()
        )

    def _answers(self, batch: B, payload: Any, *, complete: bool = False) -> str:
        """Return the answers as text, a character for each item. Unless ``complete``, the last items may have no answer.

        If the payload is a list, its numbers become the characters' code points. Raise TBloomError if there are more answers
        than items, or too few.
        """
        if type(payload) is list:
            payload = "".join(map(chr, payload))
        answers = payload if isinstance(payload, str) else payload.decode(errors="replace")
        wanted = len(batch.digests)
        if len(answers) > wanted or (complete and len(answers) < wanted):
            raise TBloomError(
                f"{self._name!r}: {len(answers)} answers to {wanted} items; "
                "has another program written to its keys?"
            )
        return answers
