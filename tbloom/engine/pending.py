"""The answers that did not reach their caller."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

from tbloom.engine.batches import Batch
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import TBloomError

#: Items whose answers are lost. With more, each call first fetches the answers to the oldest, so none is dropped. Such an
#: item takes up to 500 bytes, because each may be a call of its own.
MAX_LOST = 10_000
#: Items that are known to be new: some 90 MB. With more, calls with other items are refused before anything is sent.
MAX_NEW = 1_000_000
#: How often what is over is removed (ms). Until then it takes memory, and counts for nothing.
_SWEPT_EVERY_MS = 60_000


class Origin(NamedTuple):
    """Where new items were added, and until when the answer holds (ms, monotonic)."""

    shard: int
    generation: str
    until: int


class PendingAnswers(BeginsAnew):
    """Answers that did not reach the caller: of calls that ended in an error, or were cancelled.

    The next call of this client with such an item must get that first answer. Where it is not known, the batch is sent
    again as it was, with its token, by which the server knows its answers for ``LANE_TTL_MS``. After that it is forgotten:
    sent later, it would be executed for nobody.
    """

    __slots__ = ("_generations", "_kept", "_lock", "_lost", "_new", "_sweep_at", "exist")

    def __init__(self) -> None:
        #: False: there are none.
        self.exist: bool = False
        #: What was kept and is not taken in yet: batches whose answers are lost; new items, and the batch whose lost answers
        #: say so.
        #: The garbage collector may end a call anywhere, so keeping takes no lock.
        self._kept: deque[Batch | tuple[list[Any], Origin, Batch | None]] = deque()
        #: The present generation of each shard, as far as known.
        self._generations: dict[int, str] = {}
        #: For each item whose answer is lost: the batches without a reply that have it.
        self._lost: dict[Any, list[Batch]] = {}
        #: The items that are known to be new.
        self._new: dict[Any, Origin] = {}
        self._sweep_at = 0
        super().__init__()

    def begin(self) -> None:
        """Makes a new lock: in a forked child, a thread that is gone may have held the old one."""
        self._lock = Lock()

    def keep_lost(self, batch: Batch, lasts: int) -> None:
        """Keeps a batch that got no reply, while the server may know its answers; ``lasts``: how long (ms) its items
        are remembered."""
        # The first one may be kept no more: another copy, with another ``within``, was answered "seen".
        first, until = batch.first or batch, min(now_ms() + lasts, batch.sent + LANE_TTL_MS)
        first.until = max(first.until, until)
        self._kept.append(first)
        self.exist = True

    def keep_new(
        self,
        digests: Iterable[Any],
        lasts: int,
        first: Batch | None = None,
        shard: int = 0,
        generation: str = "",
    ) -> None:
        """Keeps new items, for ``lasts`` ms at most, which is how long they are remembered. ``first``: the batch
        whose lost answers these are; ``shard``, ``generation``: where they were added."""
        new = [*digests]
        if new or first:
            origin = Origin(shard, generation, now_ms() + min(lasts, LANE_TTL_MS))
            self._kept.append((new, origin, first))
            self.exist = True

    def batches_of(self, digests: Iterable[Any]) -> list[Batch]:
        """Copies of the batches without a reply that have one of these items, or of the oldest beyond ``MAX_LOST``."""
        with self._lock:
            self._take_in()
            oldest = islice(self._lost, max(0, len(self._lost) - MAX_LOST))
            return self._copies([*digests, *oldest])

    def take_new(self, digests: Iterable[Any]) -> dict[Any, bool]:
        """Removes the items that are known to be new, and answers for them."""
        if not self.exist:
            return {}
        with self._lock:
            self._take_in()
            new = {key: True for key in digests if self._is_new(key)}
            [*map(self._new.pop, new)]  # in one step, for a signal
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
                for batch in self._lost.pop(key, ()):
                    batch.taken |= {key}
                self._new.pop(key, None)

    def note_generation(self, shard: int, generation: str) -> None:
        """Notes the shard's present generation: new items of another one no longer wait for their caller."""
        self._generations[shard] = generation

    def __contains__(self, key: Any) -> bool:
        if not self.exist:
            return False
        with self._lock:
            self._take_in()
            return bool(self._copies([key])) or self._is_new(key)

    def _take_in(self) -> None:
        """Takes in what was kept since it was last called, and now and then removes what is over."""
        while self._kept:
            kept = self._kept[0]
            if isinstance(kept, Batch):
                for key in kept.digests:
                    batches = self._lost.setdefault(key, [])
                    if kept not in batches:
                        batches.append(kept)
            else:
                new, origin, first = kept
                if first is not None:
                    new = [key for key in new if key not in first.taken]
                    first.taken |= {*new}
                    self._remove(first)
                self._new |= dict.fromkeys(new, origin)
            self._kept.popleft()  # last, for the case of an interrupt
        now = now_ms()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEPT_EVERY_MS
            self._new = {key: origin for key, origin in self._new.items() if origin.until > now}
            for batches in [*self._lost.values()]:
                for batch in batches:
                    if batch.until <= now:
                        self._remove(batch)

    def _remove(self, batch: Batch) -> None:
        """Removes a batch whose answers are known, or that is over."""
        for key in batch.digests:
            left = [other for other in self._lost.pop(key, ()) if other is not batch]
            if left:
                self._lost[key] = left

    def _copies(self, digests: Iterable[Any]) -> list[Batch]:
        """Copies of the batches with these items that are still worth sending."""
        batches = {id(batch): batch for key in digests for batch in self._lost.get(key, ())}
        now = now_ms()
        return [
            replace(batch, digests=[*batch.digests], first=batch)
            for batch in batches.values()
            if batch.until > now
        ]

    def _is_new(self, key: Any) -> bool:
        origin = self._new.get(key)
        if origin is None or origin.until <= now_ms():
            return False
        return self._generations.get(origin.shard, origin.generation) == origin.generation


def now_ms() -> int:
    """Milliseconds by the monotonic clock."""
    return time.monotonic_ns() // 1_000_000
