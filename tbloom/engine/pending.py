"""Batches of items, and the answers that did not reach their caller. A batch is sent in one script call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from threading import RLock
from typing import Any, NamedTuple

from tbloom.engine.forks import ResetsInChild
from tbloom.engine.tokens import LANE_TTL_MS, NO_LANE, Lane
from tbloom.errors import TBloomError

#: The answer for an item whose bucket the client did not know; the item is sent again.
MOVED = "2"
#: The most items whose answers are lost. Beyond this limit, each call first fetches the oldest lost answers; none is dropped.
#: An item takes up to 500 bytes, because each may have had a call of its own.
MAX_LOST = 10_000
#: The most items that are known to be new, some 90 MB. Beyond this limit, calls with other items are refused, and not sent.
MAX_NEW = 1_000_000
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
    #: The time of the first send (ms, monotonic); 0 once a reply has come.
    sent: int = 0
    #: The digests that did not fit into the call.
    rest: Sequence[Any] = ()

    answers: str | None = None

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


class PendingBatch(NamedTuple):
    """A batch whose answers are pending."""

    batch: Batch
    #: Until when the answers are valid (ms, monotonic). After that, the server may have forgotten them.
    until: int


class PendingAnswers(ResetsInChild):
    """Answers that did not reach the caller, because the call ended in an error or was cancelled.

    This client's next call with such an item must return the first answer. The server keeps it under the call's token for
    ``LANE_TTL_MS``. If the server does not have it, the call was not executed. The token is then voided, so that a late copy
    of the call is not executed either.
    """

    __slots__ = ("_generations", "_inbox", "_lock", "_lost", "_new", "_sweep_at", "has_any")

    def __init__(self) -> None:
        #: False: no answer is pending.
        self.has_any: bool = False
        #: Batches that are not sorted yet, with their answers; None: the reply was lost. It needs no lock, because the garbage
        #: collector may end a call, and so call ``keep``, at any moment.
        self._inbox: deque[tuple[PendingBatch, str | None]] = deque()
        #: The last known generation of each shard.
        self._generations: dict[int, str] = {}
        #: For each item whose answer is lost: the batches with it that got no reply.
        self._lost: dict[Any, list[PendingBatch]] = {}
        #: The items that are known to be new, each with the batch that found it new.
        self._new: dict[Any, PendingBatch] = {}
        self._sweep_at = 0
        super().__init__()

    def reset(self) -> None:
        """Make a new lock. In a forked child, a thread of the parent may hold the old one forever."""
        self._lock = RLock()  # a signal handler may call within a call

    def keep(self, batch: Batch, lifetime_ms: int) -> None:
        """Keep a batch as long as the server may have its answers and its new items.

        ``lifetime_ms`` is how long (ms) the new items are remembered.
        """
        now = now_ms()
        until = min(now + lifetime_ms, (batch.sent or now) + LANE_TTL_MS)
        self._inbox.append((PendingBatch(batch, until), batch.answers))
        self.has_any = True

    def store_answers(self, lost: PendingBatch, answers: str) -> None:
        """Store the answers to a batch without a reply. They are ignored if another call has fetched them."""
        self._inbox.append((lost, answers))

    def lost(self, digests: Iterable[Any]) -> list[PendingBatch]:
        """Return the batches without a reply that have one of these items.

        If more than ``MAX_LOST`` items are lost, return the batches of the oldest, too.
        """
        with self._lock:
            self._sort_inbox()
            oldest = islice(self._lost, max(0, len(self._lost) - MAX_LOST))
            return self._lost_with([*digests, *oldest])

    def pop_new(self, digests: Iterable[Any]) -> dict[Any, Batch]:
        """Pop the given items that are known to be new. Return each with the batch that found it new."""
        if not self.has_any:
            return {}
        with self._lock:
            self._sort_inbox()
            known = [*dict.fromkeys(filter(self._is_new, digests))]
            # One step, so that a signal can't interrupt it.
            new = dict(zip(known, map(self._new.pop, known), strict=True))
            self.has_any = False
            # This is checked after the assignment, because ``keep`` may run in between.
            if self._inbox or self._lost or self._new:
                self.has_any = True
            return {key: kept.batch for key, kept in new.items()}

    def check_room(self, name: str, digests: Iterable[Any]) -> None:
        """Raise TBloomError if too many items are known to be new, unless one of the given items is among them."""
        if len(self._new) < MAX_NEW and not self._inbox:
            return
        with self._lock:
            self._sort_inbox()
            if len(self._new) >= MAX_NEW:
                self._new = {key: self._new[key] for key in self._new if self._is_new(key)}
            if len(self._new) < MAX_NEW or any(map(self._is_new, digests)):
                return
        raise TBloomError(
            f"{name!r}: {MAX_NEW:,} new items wait to be asked for again, because their calls ended in an error; "
            "repeat those calls first (this call changed nothing)"
        )

    def known_new(self, digests: Iterable[Any]) -> dict[Any, PendingBatch]:
        """Return the given items that are known to be new, each with the batch that found it new."""
        with self._lock:
            self._sort_inbox()
            return {key: self._new[key] for key in digests if self._is_new(key)}

    def drop_new(self, new: dict[Any, PendingBatch]) -> None:
        """Drop these answers, unless another call has taken or replaced them meanwhile."""
        with self._lock:
            for key, kept in new.items():
                if self._new.get(key) is kept:
                    del self._new[key]

    def all_new(self, digests: Iterable[Any]) -> bool:
        """Return True if all of these items are known to be new."""
        with self._lock:
            self._sort_inbox()
            return all(map(self._is_new, digests))

    def forget(self, digests: Iterable[Any]) -> None:
        """Drop the answers to these items."""
        with self._lock:
            self._sort_inbox()
            for key in digests:
                self._lost.pop(key, None)
                self._new.pop(key, None)

    def note_generation(self, shard: int, generation: str) -> None:
        """Set the shard's current generation. Answers of other generations are ignored."""
        self._generations[shard] = generation

    def __contains__(self, key: Any) -> bool:
        if not self.has_any:
            return False
        with self._lock:
            self._sort_inbox()
            return bool(self._lost_with([key])) or self._is_new(key)

    def _sort_inbox(self) -> None:
        """Sort the inbox into lost and new items. Once a minute, also remove expired answers."""
        while self._inbox:
            kept, answers = self._inbox[0]
            batch = kept.batch
            if answers is None:
                for key in batch.digests:
                    lost = self._lost.setdefault(key, [])
                    if kept not in lost:
                        lost.append(kept)
            else:
                # If the reply was lost, ignore answers that another call has fetched or forgotten meanwhile.
                self._new |= {
                    key: kept
                    for key, answer in zip(batch.digests, answers, strict=False)
                    if answer == "1" and (batch.answers or kept in self._lost.get(key, ()))
                }
                for key in batch.digests:
                    lost = self._lost.get(key, [])
                    if kept in lost:
                        lost.remove(kept)
                    if not lost:
                        self._lost.pop(key, None)
            # This comes last, so that an interrupt loses nothing. A signal handler's call may have sorted the inbox.
            if self._inbox and self._inbox[0][0] is kept:
                self._inbox.popleft()
        now = now_ms()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEPT_EVERY_MS
            self._new = {key: kept for key, kept in [*self._new.items()] if kept.until > now}
            self._lost = {key: left for key in [*self._lost] if (left := self._lost_with([key]))}

    def _lost_with(self, digests: Iterable[Any]) -> list[PendingBatch]:
        """Return the batches without a reply that have one of these items, if the server may still have their answers."""
        now = now_ms()
        lost = dict.fromkeys(kept for key in digests for kept in self._lost.get(key, ()))
        return [kept for kept in lost if kept.until > now]

    def _is_new(self, key: Any) -> bool:
        kept = self._new.get(key)
        if kept is None or kept.until <= now_ms():
            return False
        batch = kept.batch
        return self._generations.get(batch.shard, batch.generation) == batch.generation


def now_ms() -> int:
    """Return the monotonic clock's time in milliseconds."""
    return time.monotonic_ns() // 1_000_000
