"""Batches of items, and the answers that did not reach their caller. A batch is sent in one script call."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from threading import RLock
from typing import Any

from tbloom.engine.tokens import LANE_TTL_MS, NO_LANE, Lane

#: The answer for an item whose bucket the client did not know; the item is sent again.
MOVED = "2"
#: How often expired answers are removed (ms). Until then they are ignored, but take memory.
_SWEPT_EVERY_MS = 60_000


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests. ``answers`` has a character for each item; None: no reply has come."""

    # The request.
    digests: list[Any]
    shard: int = 0
    #: The lane of the call. Its name and number are the call's token. It gets no later call while the batch needs it.
    lane: Lane = NO_LANE

    # The last attempt.
    #: The shard's generation when the call was made.
    generation: str = ""
    #: When the first copy of the call without a reply was sent (ms, monotonic); None if there is none.
    unanswered_since: int | None = None
    #: The digests that did not fit into the call.
    rest: Sequence[Any] = ()

    answers: str | None = None
    #: Until when its answers, once they are pending, are valid (ms, monotonic). After that, the server may have forgotten them.
    valid_until: int = 0

    def items_with(self, wanted: str) -> list[Any]:
        """Return the items with this answer."""
        pairs = zip(self.digests, self.answers or "", strict=False)
        return [key for key, answer in pairs if answer == wanted]


#: For each item with an answer: the batch that found it new, or None. For a look-up: the batch that found it seen, or None.
Answers = dict[Any, Batch | None]


def answers_of(batches: Iterable[Batch]) -> Answers:
    """Return the answers of these batches."""
    answers: Answers = {}
    for batch in batches:
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False):
            if answer != MOVED:
                answers[digest] = batch if answer == "1" else answers.get(digest)
    return answers


def in_order(answers: dict[Any, Any], digests: Iterable[Any]) -> list[bool]:
    """Pop the answer of each item and return whether it is new. A repeated item counts as seen."""
    return [
        *map(bool, map(answers.pop, digests, repeat(None)))
    ]  # one step, so that a signal can't interrupt it


class PendingAnswers:
    """Answers that did not reach the caller, because the call ended in an error or was cancelled.

    This client's next call with such an item must return the first answer. The server keeps it under the call's token. If the
    server does not have it, the call was not executed. The token is then voided, so that a late copy of the call is not
    executed either. The lost batches of a shard are looked up before the next call to it.
    """

    def __init__(self) -> None:
        #: The batches whose answers are not known: they got no reply, or an error after a try without one.
        self.lost: list[Batch] = []
        #: The items that are known to be new, each with the batch that found it new.
        self.new: dict[Any, Batch] = {}
        self._sweep_at = 0
        # ``keep`` takes no lock, because the garbage collector may end a call, and so call ``keep``, in the middle of another
        # method. So the list and the dict are changed in place, and copied before a loop. The lock is reentrant, because a
        # signal handler may call the other methods.
        self._lock = RLock()

    def keep(self, batch: Batch, lifetime_ms: int) -> None:
        """Keep a batch as long as the server may have its answers and its new items.

        ``lifetime_ms`` is how long (ms) the new items are remembered.
        """
        now = now_ms()
        forgotten = (batch.unanswered_since or now) + LANE_TTL_MS // 2
        batch.valid_until = min(now + lifetime_ms, forgotten)
        if batch.answers is None:
            self.lost.append(batch)
        else:
            self._note_new(batch, batch.answers)
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEPT_EVERY_MS
            for key, old in self.new.copy().items():
                if old.valid_until <= now:
                    self.new.pop(key, None)

    def lost_in(self, shards: Container[int]) -> list[Batch]:
        """Return the batches of these shards without a reply, and drop those whose answers are not valid any more.

        Other shards are left out, because their nodes may be away.
        """
        now, lost = now_ms(), list[Batch]()
        for batch in self.lost.copy():
            if batch.valid_until <= now:
                self.found(batch, "")
            elif batch.shard in shards:
                lost.append(batch)
        return lost

    def found(self, batch: Batch, answers: str) -> None:
        """Note the answers to a lost batch, unless another thread has done so."""
        with self._lock:
            if batch in self.lost:
                self._note_new(batch, answers)
                self.lost.remove(batch)  # this comes last, so that an interrupt loses nothing

    def _note_new(self, batch: Batch, answers: str) -> None:
        for key, answer in zip(batch.digests, answers, strict=False):
            if answer == "1":
                self.new[key] = batch

    def known_new(self, batches: Iterable[Batch]) -> dict[Any, Batch]:
        """Return the items of these batches that are known to be new in their generation, each with the batch that found it new."""
        now, new = now_ms(), dict[Any, Batch]()
        for batch in batches:
            for key in batch.digests:
                kept = self.new.get(key)
                if kept and kept.valid_until > now and kept.generation == batch.generation:
                    new[key] = kept
        return new

    def take(self, new: dict[Any, Batch]) -> dict[Any, Batch]:
        """Drop these answers, and return them, but for those that another call has taken or replaced meanwhile."""
        with self._lock:
            mine = [key for key, kept in new.items() if self.new.get(key) is kept]
            # One step, so that a signal can't interrupt it.
            return dict(zip(mine, map(self.new.pop, mine), strict=True))

    def __contains__(self, key: Any) -> bool:
        return key in self.new or any(key in batch.digests for batch in self.lost.copy())


def now_ms() -> int:
    """Return the monotonic clock's time in milliseconds."""
    return time.monotonic_ns() // 1_000_000
