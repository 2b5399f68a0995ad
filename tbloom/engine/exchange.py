"""Calls with tokens, corrected and repeated until each item has its answer; answers that get lost stay pending."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tbloom.engine.batches import Batch, PendingAnswers, answers_of
from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    Call,
    Failure,
    Flow,
    ScriptCall,
    again_in_full,
    chunks,
    raise_first,
    text,
)
from tbloom.engine.tokens import LanePool
from tbloom.errors import TBloomError

#: A slice ends, or the layout changes, between a call and its reply: by chance once or twice. More often, without any
#: answer, means that the server's clock runs away, or that another program changes the layout.
MAX_CORRECTIONS = 16
CLOCK_CHANGED = "the server's clock left the current slice"


def too_many_corrections(name: str, change: str) -> TBloomError:
    """The error for a call that the server has corrected ``MAX_CORRECTIONS`` times."""
    return TBloomError(f"{name!r}: {change} {MAX_CORRECTIONS} times in a row")


class Exchange:
    """One client's calls to the store ``name``."""

    #: What makes corrections necessary.
    _change = CLOCK_CHANGED

    def __init__(self, name: str) -> None:
        self._name = name
        self.pending_answers = PendingAnswers()
        self._lanes = LanePool()

    def with_tokens(self, batches: list[Batch], asking: Flow[None]) -> Flow[None]:
        """Runs the flow with a token for each batch; keeps pending answers if it fails. It may add batches."""
        for batch in batches:
            self._give_token(batch)
        try:
            yield from asking
        except BaseException:  # GeneratorExit too, after a cancellation
            self.pending_answers.keep(batches)
            raise
        for batch in batches:
            if batch.lane is not None and not batch.again:
                self._lanes.give_back(batch.lane)

    def ask_until_answered(
        self,
        batches: list[Batch],
        call: Callable[[Batch], ScriptCall],
        prepare: Callable[[list[Batch]], Flow[bool] | None],
    ) -> Flow[None]:
        """Sends a call for each batch until each item has its answer.

        ``prepare`` returns None, or a flow that comes before the calls; if that returns False, it is run again.
        """
        for some in chunks(list(batches), CALLS_AT_ONCE):  # batches are added meanwhile
            pending, corrections = list(some), 0
            while pending:
                if corrections > MAX_CORRECTIONS:
                    raise too_many_corrections(self._name, self._change)
                corrections += 1
                preparing = prepare(pending)
                if preparing is not None and not (yield from preparing):
                    continue
                asked = _items_in(pending)
                calls = [call(batch) for batch in pending]
                done = yield from self._deliver(calls, pending, self._accept)
                rest = [more for batch in done for more in self._rest_of(batch)]
                batches += rest
                pending = [batch for batch in pending if batch not in done] + rest
                if pending and _items_in(pending) < asked:
                    corrections = 0

    def add(
        self,
        digests: list[int],
        split: Callable[[Iterable[int]], list[Batch]],
        change: Callable[[list[Batch]], Flow[None]],
        ttl: int = 0,
    ) -> Flow[dict[int, bool]]:
        """Which items are new? The calls of pending answers are sent again with their own tokens."""
        pending = self.pending_answers.take(digests)
        batches = split(digest for digest in digests if digest not in pending)
        again = {id(batch): batch for batch in pending.values()}.values()
        for batch in again:
            batch.ttl = ttl  # holds if the server has not executed the call yet
        batches += again
        yield from change(batches)
        # The other items of those batches have their answers, or are still pending.
        answers = {
            key: new
            for batch in again
            for key, new in answers_of([batch]).items()
            if key in batch.wanted
        }
        answers |= answers_of(batch for batch in batches if not batch.again)
        missing = [digest for digest in digests if digest not in answers] if pending else []
        if missing:
            answers |= yield from self.add(missing, split, change, ttl)
        return answers

    @abstractmethod
    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: the call must be made anew."""

    @abstractmethod
    def _rest_of(self, batch: Batch) -> list[Batch]:
        """A batch of the items that got no answer, if there are any."""

    def _give_token(self, batch: Batch) -> None:
        if batch.lane is None:
            batch.lane = self._lanes.take()
            batch.number = batch.lane.next_number()

    def _deliver(
        self,
        calls: Sequence[Call],
        batches: Sequence[Batch],
        accept: Callable[[Batch, Any], bool],
    ) -> Flow[list[Batch]]:
        """Sends a call for each batch; returns the batches whose replies were accepted."""
        doubted = [batch.in_doubt for batch in batches]
        for batch in batches:
            batch.in_doubt = True
        replies = yield calls
        failed = Failure in map(type, replies)
        if failed:
            replies = yield from again_in_full(calls, replies)
        done, errors = [], []
        for batch, reply, was_in_doubt in zip(batches, replies, doubted, strict=True):
            if isinstance(reply, Failure):  # the server may have executed an earlier copy
                batch.in_doubt = was_in_doubt or reply.in_doubt
                continue
            batch.in_doubt = False
            try:
                if accept(batch, reply):
                    done.append(batch)
            except TBloomError as error:  # raised after all replies were accepted
                errors.append(error)
        if failed:
            yield from raise_first(calls, replies)
        if errors:
            raise errors[0]
        return done

    def _batch_of_rest(self, batch: Batch, digests: list[int]) -> list[Batch]:
        """A batch like this one for the digests, if there are any."""
        if batch.again:
            digests = [digest for digest in digests if digest in batch.wanted]
        if not digests:
            return []
        rest = Batch(digests, batch.shard, label=batch.label, ttl=batch.ttl)
        if batch.lane is not None:
            self._give_token(rest)
        return [rest]

    def _answers(self, batch: Batch, payload: Any, *, complete: bool = False) -> str:
        """A character for each item; unless ``complete``, for the first ones at least."""
        answers = text(payload)
        wanted = len(batch.digests)
        if len(answers) > wanted or (complete and len(answers) < wanted):
            raise TBloomError(
                f"{self._name!r}: {len(answers)} answers to {wanted} items; "
                "has another program written to the keys of its lanes?"
            )
        return answers


def _items_in(batches: list[Batch]) -> int:
    return sum([len(batch.digests) for batch in batches])
