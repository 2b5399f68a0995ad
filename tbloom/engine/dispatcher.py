"""Calls with tokens, corrected and repeated until each item has its answer; answers that get lost stay pending."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tbloom.engine.flow import (
    CALLS_AT_ONCE,
    MAX_CORRECTIONS,
    Call,
    Failure,
    Flow,
    chunks,
    raise_first,
    too_many_corrections,
)
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.pending import (
    MOVED,
    SEEN,
    Answers,
    Batch,
    PendingAnswers,
    answers_of,
    now_ms,
)
from tbloom.engine.replicas import Lacking, Replicas
from tbloom.engine.scripts import ScriptCall
from tbloom.engine.tokens import LANE_TTL_MS, LanePool
from tbloom.errors import NotReplicated, TBloomError

T = TypeVar("T")
CLOCK_CHANGED = "the server's clock left the current slice"


class Dispatcher(BeginsAnew):
    """One client's calls to the store ``name``."""

    #: What makes corrections necessary.
    _change = CLOCK_CHANGED

    def __init__(self, name: str, replicas: Replicas | None = None) -> None:
        self._name = name
        self.replicas: Replicas | None = replicas
        super().__init__()

    def begin(self) -> None:
        """A forked process becomes another client, and leaves pending answers to its parent."""
        self.pending_answers: PendingAnswers = PendingAnswers()
        self.lanes: LanePool = LanePool()

    def send_once(
        self, batches: list[Batch], call: Callable[[Batch], ScriptCall], *, keeps: bool = True
    ) -> Flow[None]:
        """``send`` with a token for each batch. If it fails, answers are pending; not so without ``keeps``."""
        lanes = self.lanes
        for batch in batches:
            batch.token, batch.call = batch.token or lanes.take(), call
        try:
            yield from self.send(batches, call, store=keeps)
            lanes.free.extend([batch.token for batch in batches if batch.token])
        except BaseException:  # GeneratorExit too, after a cancellation
            if keeps:
                self.keep(batches)
            raise

    def send(
        self,
        batches: list[Batch],
        call: Callable[[Batch], ScriptCall],
        *,
        store: bool | None = False,
        confirmed: str = "1",
    ) -> Flow[None]:
        """Sends a call for each batch until each item has its answer; adds batches of items that must be sent again.

        ``store``: parameters are stored where there are none; None: the parameters don't matter. ``confirmed``: the answers
        that the replicas must have, where ``store`` is True.
        """
        for asked in chunks([*batches], CALLS_AT_ONCE):
            unanswered, corrections = [*asked], 0
            while unanswered:
                if corrections > MAX_CORRECTIONS:
                    raise too_many_corrections(self._name, self._change)
                corrections += 1
                known = len(unanswered)
                preparing = self._prepare(unanswered, store=store)
                batches += unanswered[known:]
                if preparing is not None and not (yield from preparing):
                    continue
                calls = dict[Batch, ScriptCall]()
                for batch in unanswered:
                    again = self._made_again(batch, call) if batch.first else None
                    if made := (yield from again) if again else call(batch):
                        calls[batch] = made
                        if self.replicas and store:
                            made.behind = self.replicas.behind(made.key)
                if not calls:
                    break
                left = yield from self._deliver(calls, self._accept, confirmed)
                if left:
                    batches += [batch for batch in left if batch not in calls]
                    answered = any((batch.answers or "").strip(MOVED) for batch in calls)
                    corrections = 0 if answered else corrections
                unanswered = left

    def _made_again(
        self, batch: Batch, call: Callable[[Batch], ScriptCall]
    ) -> Flow[ScriptCall | None]:
        """The call of a copy; None: the lost answers that it is to get belong to what was cleared."""
        assert batch.first is not None  # noqa: S101 - it is a copy
        for _ in range(2):
            made = call(batch)
            if batch.first.generation == batch.generation:
                return made
            # What is known may come from a reply that was late.
            yield from self._learn_generation(batch.shard)
        batch.answers = SEEN * len(batch.digests)
        return None

    def add(
        self,
        digests: list[Any],
        batches: list[Batch],
        call: Callable[[Batch], ScriptCall],
        ttl: int = 0,
    ) -> Flow[Answers]:
        """Which of the items in these batches are new? An item without an answer is seen. ``ttl``: how long it is remembered,
        in ms."""
        pending = self.pending_answers
        if pending.exist:
            yield from self._fetch(digests, call, ttl)
            pending.check_room(self._name, digests)
        for batch in batches:
            batch.ttl = ttl
        # Those that are known to be new are sent too: the store may have forgotten them since.
        try:
            yield from self.send_once(batches, call)
        except TBloomError as error:
            # Refused from now on, after a reconfigure() for example: this is the last time to tell.
            if isinstance(error, NotReplicated) or not pending.knows(digests):
                raise
        for batch in batches:
            if batch.answers:  # a reply that was late may have answered an earlier one since
                pending.note_generation(batch.shard, batch.generation)
        try:
            return answers_of(batches) | pending.take_new(digests)
        except BaseException:  # a signal's
            self.keep(batches)
            raise

    def _fetch(
        self, digests: list[Any], call: Callable[[Batch], ScriptCall] | None = None, ttl: int = 0
    ) -> Flow[None]:
        """Sends batches without a reply again: those with these items, and the oldest where there are too many.

        ``call``, ``ttl``: what makes the present call, if that adds the items too.
        """
        copies, asked = self.pending_answers.batches_of(digests), {*digests}
        for batch in copies:
            if call and asked.issuperset(batch.digests):
                batch.sent = now_ms()  # all of its items are asked for, as if for the first time
                if ttl:  # without one, tasks that ask in other numbers of slices may fetch it at once, each as its own
                    batch.ttl, batch.call = ttl, call
        try:
            yield from self.send(copies, Batch.make, store=True)
        except TBloomError as error:
            if isinstance(error, NotReplicated):
                raise
            # The present call meets others too, and some answers may be known now.
        finally:
            self.keep(copies)

    def keep_new(self, digest: Any, batch: Batch) -> None:
        """Keeps a new item whose caller has gone. What the client knows of the store may have changed since the answer."""
        kept = replace(batch, digests=[digest], answers="1", taken=frozenset())
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
    def _prepare(self, batches: list[Batch], *, store: bool | None) -> Flow[bool] | None:
        """None, or a flow that comes before the batches' calls; if that returns False, another one is needed.

        May split batches, and adds the further ones to the list.
        """

    @abstractmethod
    def _learn_generation(self, shard: int) -> Flow[None]:
        """Asks the server for the shard's present generation."""

    @abstractmethod
    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: the call must be made anew."""

    @abstractmethod
    def _rest_of(self, batch: Batch) -> list[Batch]:
        """A batch of the items that got no answer, if there are any. Of a copy none: whoever asks for them sends them."""

    def _deliver(
        self, made: Mapping[Batch, Call], accept: Callable[[Batch, Any], bool], confirmed: str = "1"
    ) -> Flow[list[Batch]]:
        """Sends a call for each batch; returns the batches that must be sent next."""
        batches, calls = [*made], [*made.values()]
        first_sent = [batch for batch in batches if not batch.sent]
        for batch in first_sent:
            batch.sent = now_ms()
        replies = yield calls
        left, errors = list[Batch](), list[TBloomError]()
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, Failure):
                if batch in first_sent and not reply.answer_lost:
                    batch.sent = 0  # no copy was executed
                continue
            own = reply.reply if isinstance(reply, Lacking) else reply
            batch.is_resent |= made[batch].is_resent
            try:
                left += self._rest_of(batch) if accept(batch, own) else [batch]
            except TBloomError as error:  # raised after all replies were accepted
                errors.append(error)
                if batch.first and batch.answers is None:
                    # Refused, so no earlier copy was executed.
                    batch.answers = SEEN * len(batch.digests)
            if own is not reply and set(confirmed) & set(batch.answers or ""):
                errors.append(NotReplicated(self._name, *reply[1:]))
                batch.answers = None  # as if the reply were lost
                continue
            batch.sent = 0  # last, for the case of an interrupt
        if Failure in map(type, replies):
            yield from raise_first(calls, replies)
        if errors:
            raise errors[0]
        return left

    def _batch_of_rest(self, batch: Batch, digests: list[Any]) -> Batch:
        """A batch like this one for the digests."""
        token = self.lanes.take() if batch.token else None
        return replace(
            batch, digests=digests, token=token, answers=None, times=(), sent=0, compared=False
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
