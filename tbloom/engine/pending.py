"""Batches of items, each for one script call, and the answers that did not reach their caller."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from threading import Lock
from typing import Any, NamedTuple

from tbloom.engine.forks import ResetsInChild
from tbloom.engine.tokens import LANE_TTL_MS, NO_LANE, Lane
from tbloom.errors import TBloomError

#: The answer for an item whose bucket the client did not know; the item is sent again.
MOVED = "2"
#: The most items whose answers are lost. Beyond it, each call first fetches the answers to the oldest, so none is dropped.
#: Such an item takes up to 500 bytes, because each may be a call of its own.
MAX_LOST = 10_000
#: The most items that are known to be new: some 90 MB. Beyond it, calls with other items are refused before anything is sent.
MAX_NEW = 1_000_000
#: How often expired answers are removed (ms). Until then they take memory, but are ignored.
_SWEPT_EVERY_MS = 60_000


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests; ``answers`` has a character for each, once known."""

    # The request.
    digests: list[Any]
    shard: int = 0
    #: The lane and its number are the call's token, which makes it safe to resend. The lane has no later call.
    lane: Lane = NO_LANE

    # The last attempt.
    #: The shard's generation that its call was made for.
    generation: str = ""
    #: The time of the first send (ms, monotonic); 0 once a reply has come.
    sent: int = 0
    #: Digests that its call has no room for.
    rest: Sequence[Any] = ()

    answers: str | None = None

    def items_with(self, wanted: str) -> list[Any]:
        """Return its items that have this answer."""
        pairs = zip(self.digests, self.answers or "", strict=False)
        return [key for key, answer in pairs if answer == wanted]


#: For each item that has an answer: the batch that found it new (for a verb that only asks: seen), or None.
Answers = dict[Any, Batch | None]


def answers_of(batches: Iterable[Batch]) -> Answers:
    """Return the answers to the items that have one."""
    answers: Answers = {}
    for batch in batches:
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False):
            if answer != MOVED:
                answers[digest] = batch if answer == "1" else answers.get(digest)
    return answers


def in_order(answers: dict[Any, Any], digests: Iterable[Any]) -> list[bool]:
    """Pop the answer of each item and return whether it is new. A repeated item counts as seen."""
    return [*map(bool, map(answers.pop, digests, repeat(None)))]  # in one step, in case of a signal


class Kept(NamedTuple):
    """A batch whose answers are pending."""

    batch: Batch
    #: Until when they count (ms, monotonic). The server may have forgotten them after that.
    until: int


class PendingAnswers(ResetsInChild):
    """Answers that did not reach the caller, because the call ended in an error or was cancelled.

    The next call of this client with such an item must get that first answer. The server knows it by the call's token for
    ``LANE_TTL_MS``. If the server does not know it, the call was not executed. The token is then voided, so that a late copy
    is not executed either.
    """

    __slots__ = ("_generations", "_inbox", "_lock", "_lost", "_new", "_sweep_at", "exist")

    def __init__(self) -> None:
        #: False: no answer is pending.
        self.exist: bool = False
        #: The inbox: batches and their answers; answers None: the reply was lost.
        #: The garbage collector may end a call anywhere, so ``keep`` takes no lock.
        self._inbox: deque[tuple[Kept, str | None]] = deque()
        #: The last known generation of each shard.
        self._generations: dict[int, str] = {}
        #: For each item whose answer is lost: the batches without a reply that contain it.
        self._lost: dict[Any, list[Kept]] = {}
        #: The items that are known to be new, each with the batch that found it new.
        self._new: dict[Any, Kept] = {}
        self._sweep_at = 0
        super().__init__()

    def reset(self) -> None:
        """Make a new lock: a thread that a forked child does not have may have held the old one."""
        self._lock = Lock()

    def keep(self, batch: Batch, lasts: int) -> None:
        """Keep a batch for as long as the server may know its answers, and its new items.

        ``lasts`` is how long (ms) its items are remembered.
        """
        now = now_ms()
        until = min(now + lasts, (batch.sent or now) + LANE_TTL_MS)
        self._inbox.append((Kept(batch, until), batch.answers))
        self.exist = True

    def settle(self, lost: Kept, answers: str) -> None:
        """Store the answers to a lost batch, unless another call has fetched them."""
        self._inbox.append((lost, answers))

    def lost(self, digests: Iterable[Any]) -> list[Kept]:
        """Return the batches without a reply that contain one of these items, or one of the oldest beyond ``MAX_LOST``."""
        with self._lock:
            self._take_in()
            oldest = islice(self._lost, max(0, len(self._lost) - MAX_LOST))
            return self._lost_with([*digests, *oldest])

    def take_new(self, digests: Iterable[Any]) -> dict[Any, Batch]:
        """Remove the given items that are known to be new, and return them, each with the batch that found it new."""
        if not self.exist:
            return {}
        with self._lock:
            self._take_in()
            known = [*dict.fromkeys(filter(self._is_new, digests))]
            # In one step, in case of a signal.
            new = dict(zip(known, map(self._new.pop, known), strict=True))
            self.exist = False
            # Checked afterwards, because ``keep`` may run in between.
            if self._inbox or self._lost or self._new:
                self.exist = True
            return {key: kept.batch for key, kept in new.items()}

    def check_room(self, name: str, digests: Iterable[Any]) -> None:
        """Raise TBloomError if too many items are known to be new, and none of these is one of them."""
        if len(self._new) < MAX_NEW and not self._inbox:
            return
        with self._lock:
            self._take_in()
            if len(self._new) >= MAX_NEW:
                self._new = {key: self._new[key] for key in self._new if self._is_new(key)}
            if len(self._new) < MAX_NEW or any(map(self._is_new, digests)):
                return
        raise TBloomError(
            f"{name!r}: {MAX_NEW:,} new items of calls that ended in an error wait to be asked for again; "
            "repeat those calls before others (nothing of this one was done)"
        )

    def known_new(self, digests: Iterable[Any]) -> dict[Any, Kept]:
        """Return the given items that are known to be new, each with what is kept of it."""
        with self._lock:
            self._take_in()
            return {key: self._new[key] for key in digests if self._is_new(key)}

    def drop_new(self, new: dict[Any, Kept]) -> None:
        """Drop these answers, unless another call has taken or replaced them meanwhile."""
        with self._lock:
            for key, kept in new.items():
                if self._new.get(key) is kept:
                    del self._new[key]

    def knows(self, digests: Iterable[Any]) -> bool:
        """Return True if all of these items are known to be new."""
        with self._lock:
            self._take_in()
            return all(map(self._is_new, digests))

    def forget(self, digests: Iterable[Any]) -> None:
        """Drop the answers to these items."""
        with self._lock:
            self._take_in()
            for key in digests:
                self._lost.pop(key, None)
                self._new.pop(key, None)

    def note_generation(self, shard: int, generation: str) -> None:
        """Set the shard's present generation. Answers of other generations are ignored."""
        self._generations[shard] = generation

    def __contains__(self, key: Any) -> bool:
        if not self.exist:
            return False
        with self._lock:
            self._take_in()
            return bool(self._lost_with([key])) or self._is_new(key)

    def _take_in(self) -> None:
        """Sort the inbox into lost and new items. Now and then, remove expired answers."""
        while self._inbox:
            kept, answers = self._inbox[0]
            batch = kept.batch
            if answers is None:
                for key in batch.digests:
                    lost = self._lost.setdefault(key, [])
                    if kept not in lost:
                        lost.append(kept)
            else:
                # From a lost batch, only answers that no other call has fetched or forgotten meanwhile.
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
            self._inbox.popleft()  # last, so that an interrupt loses nothing
        now = now_ms()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEPT_EVERY_MS
            self._new = {key: kept for key, kept in self._new.items() if kept.until > now}
            self._lost = {key: left for key in self._lost if (left := self._lost_with([key]))}

    def _lost_with(self, digests: Iterable[Any]) -> list[Kept]:
        """Return the batches without a reply that contain one of these items, and that the server may still know."""
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
