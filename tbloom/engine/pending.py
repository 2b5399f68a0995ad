"""Batches of items, each for one script call; and those whose answers did not reach their caller."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from threading import Lock
from typing import Any

from tbloom.engine.forks import BeginsAnew
from tbloom.engine.tokens import LANE_TTL_MS, NO_LANE, Lane
from tbloom.errors import TBloomError

#: The answer for an item that is in another bucket than the client thought; it is sent again.
MOVED = "2"
#: Items whose answers are lost. With more, each call first fetches the answers to the oldest, so none is dropped. Such an
#: item takes up to 500 bytes, because each may be a call of its own.
MAX_LOST = 10_000
#: Items that are known to be new: some 90 MB. With more, calls with other items are refused before anything is sent.
MAX_NEW = 1_000_000
#: How often what is over is removed (ms). Until then it takes memory, and counts for nothing.
_SWEPT_EVERY_MS = 60_000


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests; ``answers`` has a character for each, once known."""

    # What is asked.
    digests: list[Any]
    shard: int = 0
    #: The lane with the number of this call, and no later one: what makes the call safe to resend.
    lane: Lane = NO_LANE
    #: The number of items that the client has in hand for its shard, from these on.
    in_hand: int = 0
    #: The age of the slice that its items go into; 0: the current one.
    age: int = 0
    #: How long its items are remembered (ms); 0 where the call sets no TTL.
    ttl: int = 0

    # The last attempt.
    #: What its call was made from: a slice's calls, or a directory of buckets; and the generation of its shard then.
    known: Any = None
    generation: str = ""
    #: When its call was sent first, as long as no reply says what became of it (ms, monotonic); else 0.
    sent: int = 0
    #: The parameters were just compared, because the server asked for it.
    compared: bool = False
    #: Digests that its call has no room for.
    rest: Sequence[Any] = ()

    # The answers.
    answers: str | None = None
    #: When the items that are seen expire (ms), if the store says so.
    times: Sequence[int] = ()
    #: Until when the server may know them, if they are lost (ms, monotonic).
    until: int = 0

    def items_with(self, wanted: str) -> list[Any]:
        """Its items that have this answer."""
        pairs = zip(self.digests, self.answers or "", strict=False)
        return [key for key, answer in pairs if answer == wanted]


#: For each item that has an answer: the batch in which it is new; of a verb that only asks, the one that says yes. None: in none.
Answers = dict[Any, Batch | None]


def answers_of(batches: Iterable[Batch]) -> Answers:
    """The answers to the items that have one."""
    answers: Answers = {}
    for batch in batches:
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False):
            if answer != MOVED:
                answers[digest] = batch if answer == "1" else answers.get(digest)
    return answers


def in_order(answers: dict[Any, Any], digests: Iterable[Any]) -> list[bool]:
    """Whether these items are new, by the answers, which are taken out; a repeat is seen."""
    return [*map(bool, map(answers.pop, digests, repeat(None)))]  # in one step, for a signal


class PendingAnswers(BeginsAnew):
    """Answers that did not reach the caller: of calls that ended in an error, or were cancelled.

    The next call of this client with such an item must get that first answer. The server knows it by the call's token for
    ``LANE_TTL_MS``; where it does not, the call was not executed, and is ended, so that no late copy of it is.
    """

    __slots__ = ("_generations", "_kept", "_lock", "_lost", "_new", "_sweep_at", "exist")

    def __init__(self) -> None:
        #: False: there are none.
        self.exist: bool = False
        #: What was kept and is not taken in yet: batches and their answers; None: these are lost.
        #: The garbage collector may end a call anywhere, so keeping takes no lock.
        self._kept: deque[tuple[Batch, str | None]] = deque()
        #: The present generation of each shard, as far as known.
        self._generations: dict[int, str] = {}
        #: For each item whose answer is lost: the batches without a reply that have it.
        self._lost: dict[Any, list[Batch]] = {}
        #: The items that are known to be new, each with the batch that says so.
        self._new: dict[Any, Batch] = {}
        self._sweep_at = 0
        super().__init__()

    def begin(self) -> None:
        """Makes a new lock: in a forked child, a thread that is gone may have held the old one."""
        self._lock = Lock()

    def keep(self, batch: Batch, lasts: int) -> None:
        """Keeps a batch: while the server may know its answers, or its new items. ``lasts``: how long (ms) its items are
        remembered."""
        now = now_ms()
        batch.until = min(now + lasts, (batch.sent or now) + LANE_TTL_MS)
        self._kept.append((batch, batch.answers))
        self.exist = True

    def settle(self, batch: Batch, answers: str) -> None:
        """Takes the answers to a lost batch, unless another call has."""
        self._kept.append((batch, answers))

    def lost(self, digests: Iterable[Any]) -> list[Batch]:
        """The batches without a reply that have one of these items, or of the oldest beyond ``MAX_LOST``."""
        with self._lock:
            self._take_in()
            oldest = islice(self._lost, max(0, len(self._lost) - MAX_LOST))
            return self._lost_with([*digests, *oldest])

    def take_new(self, digests: Iterable[Any]) -> dict[Any, Batch]:
        """Removes the items that are known to be new, and answers for them."""
        if not self.exist:
            return {}
        with self._lock:
            self._take_in()
            known = [*dict.fromkeys(filter(self._is_new, digests))]
            # In one step, for a signal.
            new = dict(zip(known, map(self._new.pop, known), strict=True))
            self.exist = False
            # Not in one step, because something may be kept between.
            if self._kept or self._lost or self._new:
                self.exist = True
            return new

    def check_room(self, name: str, digests: Iterable[Any]) -> None:
        """Raises TBloomError if too many items are known to be new, and these are others."""
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

    def known_new(self, digests: Iterable[Any]) -> dict[Any, Batch]:
        """The items that are known to be new, each with the batch that says so."""
        with self._lock:
            self._take_in()
            return {key: self._new[key] for key in digests if self._is_new(key)}

    def drop_new(self, new: dict[Any, Batch]) -> None:
        """Drops these answers, where nobody has had them meanwhile."""
        with self._lock:
            for key, batch in new.items():
                if self._new.get(key) is batch:
                    del self._new[key]

    def knows(self, digests: Iterable[Any]) -> bool:
        """True: all of these items are known to be new."""
        with self._lock:
            self._take_in()
            return all(map(self._is_new, digests))

    def forget(self, digests: Iterable[Any]) -> None:
        """Drops the answers to these items."""
        with self._lock:
            self._take_in()
            for key in digests:
                self._lost.pop(key, None)
                self._new.pop(key, None)

    def note_generation(self, shard: int, generation: str) -> None:
        """Notes the shard's present generation: new items of another one no longer wait for their caller."""
        self._generations[shard] = generation

    def __contains__(self, key: Any) -> bool:
        if not self.exist:
            return False
        with self._lock:
            self._take_in()
            return bool(self._lost_with([key])) or self._is_new(key)

    def _take_in(self) -> None:
        """Takes in what was kept since it was last called, and now and then removes what is over."""
        while self._kept:
            batch, answers = self._kept[0]
            if answers is None:
                for key in batch.digests:
                    batches = self._lost.setdefault(key, [])
                    if batch not in batches:
                        batches.append(batch)
            else:
                # Of a lost one only what no other call has fetched before, or forgotten.
                self._new |= {
                    key: batch
                    for key, answer in zip(batch.digests, answers, strict=False)
                    if answer == "1" and (batch.answers or batch in self._lost.get(key, ()))
                }
                for key in batch.digests:
                    batches = self._lost.get(key, [])
                    if batch in batches:
                        batches.remove(batch)
                    if not batches:
                        self._lost.pop(key, None)
            self._kept.popleft()  # last, for the case of an interrupt
        now = now_ms()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEPT_EVERY_MS
            self._new = {key: batch for key, batch in self._new.items() if batch.until > now}
            self._lost = {key: left for key in self._lost if (left := self._lost_with([key]))}

    def _lost_with(self, digests: Iterable[Any]) -> list[Batch]:
        """The batches with these items that the server may still know."""
        now = now_ms()
        batches = dict.fromkeys(batch for key in digests for batch in self._lost.get(key, ()))
        return [batch for batch in batches if batch.until > now]

    def _is_new(self, key: Any) -> bool:
        batch = self._new.get(key)
        if batch is None or batch.until <= now_ms():
            return False
        return self._generations.get(batch.shard, batch.generation) == batch.generation


def now_ms() -> int:
    """Milliseconds by the monotonic clock."""
    return time.monotonic_ns() // 1_000_000
