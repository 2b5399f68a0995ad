"""What all conversations do alike: calls get tokens, replies go to their batches, and what nobody was told is
kept in mind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tbloom.engine.batches import Batch, PendingAnswers, answers_of
from tbloom.engine.flow import Call, Failure, Flow, again_in_full, raise_first, text
from tbloom.engine.outage import Guessed
from tbloom.engine.tokens import Lanes
from tbloom.errors import TBloomError


class Exchange:
    """One client's calls to the store ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.pending_answers = PendingAnswers()
        self._lanes = Lanes()

    def settle(self, batches: list[Batch], asking: Flow[None]) -> Flow[None]:
        """Has the flow ask with tokens, and notes whose answers got lost. It may add batches."""
        for batch in batches:
            self._give_token(batch)
        try:
            yield from asking
        except Guessed:  # they were told
            raise
        except BaseException:  # the flow's end too, when its driver was cancelled
            self.pending_answers.keep(batches)
            raise
        for batch in batches:
            if batch.lane is not None and not batch.again:
                self._lanes.give_back(batch.lane)

    def add(
        self,
        digests: list[int],
        split: Callable[[Iterable[int]], list[Batch]],
        change: Callable[[list[Batch]], Flow[None]],
        ttl: int = 0,
    ) -> Flow[dict[int, bool]]:
        """Which items are new? Those that nobody was told of are asked for with their own tokens."""
        untold = self.pending_answers.take(digests)
        batches = split(digest for digest in digests if digest not in untold)
        again = {id(batch): batch for batch in untold.values()}.values()
        for batch in again:
            batch.ttl = ttl  # if the server has not executed it yet; else the first one holds
        batches += again
        yield from change(batches)
        # The others of those batches were told before, or are still to be.
        answers = {
            key: new
            for batch in again
            for key, new in answers_of([batch]).items()
            if key in batch.wanted  # another one may have it too, and not be asked for it
        }
        answers |= answers_of(batch for batch in batches if not batch.again)
        missing = [digest for digest in digests if digest not in answers] if untold else []
        if missing:
            answers |= yield from self.add(missing, split, change, ttl)
        return answers

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
        """Sends a call for each batch, and has its reply accepted; returns those that are done."""
        doubted = [batch.in_doubt for batch in batches]
        for batch in batches:
            batch.in_doubt = True
        replies = yield calls
        failed = Failure in map(type, replies)
        if failed:
            replies = yield from again_in_full(calls, replies)
        done, errors = [], []
        for batch, reply, was_in_doubt in zip(batches, replies, doubted, strict=True):
            if isinstance(reply, Failure):  # an earlier copy may have been executed all the same
                batch.in_doubt = was_in_doubt or reply.in_doubt
                continue
            batch.in_doubt = False
            try:
                if accept(batch, reply):
                    done.append(batch)
            except TBloomError as error:  # raised once all that was answered is noted
                errors.append(error)
        if failed:
            yield from raise_first(calls, replies)
        if errors:
            raise errors[0]
        return done

    def _rest_of(self, batch: Batch, digests: Iterable[int]) -> list[Batch]:
        """What is left to be asked of a batch, as another one, if it is anything."""
        left = list(digests)
        if batch.again:  # the others may not be asked for this time
            left = [digest for digest in left if digest in batch.wanted]
        if not left:
            return []
        rest = Batch(left, batch.shard, label=batch.label, ttl=batch.ttl)
        if batch.lane is not None:
            self._give_token(rest)
        return [rest]

    def _answers(self, batch: Batch, payload: Any, *, all_of_them: bool) -> str:
        """A character for each item; else for the first ones at least."""
        answers = text(payload)
        wanted = len(batch.digests)
        if len(answers) > wanted or (all_of_them and len(answers) < wanted):
            raise TBloomError(
                f"{self._name!r}: {len(answers)} answers to {wanted} items; "
                "has somebody else written to its lanes?"
            )
        return answers
