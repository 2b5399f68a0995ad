"""The answers that did not reach their caller."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any

from tbloom.engine.batches import Batch
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import TBloomError

#: Items whose answers are lost. With more, each call first fetches the answers to the oldest, so none is dropped. Such an
#: item takes up to 500 bytes, because each may be a call of its own.
MAX_LOST = 10_000
#: Items that are known to be new: 64 MB. With more, calls with other items are refused before anything is sent.
MAX_NEW = 4_000_000
#: How long such an item is kept (ms): an hour, after it was rounded down in ``_until``.
_KEPT_MS = LANE_TTL_MS * 33 // 32
_BUCKETS = 1 << 14
_SIZE = 16


#: A shard, and its generation.
_Origin = tuple[int, str]


class NewItems(dict[int, bytes]):
    """A set of digests that takes 16 bytes for each: joined, in buckets by their hashes, which nobody can choose."""

    #: How many they are.
    count = 0

    def add(self, digests: bytes) -> None:
        """Adds these joined digests."""
        buckets = defaultdict[int, list[bytes]](list)
        for key in _parted(digests):
            buckets[hash(key) % _BUCKETS].append(key)
        for bucket, keys in buckets.items():
            self[bucket] = self.get(bucket, b"") + b"".join(keys)
            self.count += len(keys)

    def holds(self, key: bytes) -> bool:
        """True: the digest is one of them."""
        joined = self.get(hash(key) % _BUCKETS, b"")
        return key in joined and key in _parted(joined)  # it may lie across two others

    def remove(self, key: bytes) -> bool:
        """Removes the digest; False: it is not one of them."""
        if not self.holds(key):
            return False
        bucket = hash(key) % _BUCKETS
        left = b"".join([other for other in _parted(self[bucket]) if other != key])
        self.count -= (len(self[bucket]) - len(left)) // _SIZE
        self[bucket] = left
        if not self[bucket]:
            del self[bucket]
        return True


class PendingAnswers(BeginsAnew):
    """Answers that did not reach the caller: of calls that ended in an error, or were cancelled.

    The next call of this client with such an item must get that first answer. Where it is not known, the batch is sent
    again as it was, with its token, by which the server knows its answers for ``LANE_TTL_MS``.
    """

    __slots__ = ("_generations", "_kept", "_lock", "_lost", "_new", "exist")

    def __init__(self) -> None:
        #: False: there are none.
        self.exist = False
        #: What was kept since the last look: batches whose answers are lost; new items, and the batch whose lost answers
        #: say so.
        #: The garbage collector may end a call anywhere, so keeping takes no lock.
        self._kept: deque[Batch | tuple[Batch | None, int, bytes, _Origin]] = deque()
        #: The latest known generation of each shard.
        self._generations: dict[int, str] = {}
        #: For each item whose answer is lost: the batches without a reply that have it.
        self._lost: dict[Any, list[Batch]] = {}
        #: The items that are known to be new, by when they are dropped (ms, monotonic).
        self._new: dict[int, NewItems] = {}
        super().__init__()

    def begin(self) -> None:
        """Makes a new lock: in a forked child, a thread that is gone may have held the old one."""
        self._lock = Lock()

    def keep_lost(self, batch: Batch) -> None:
        """Keeps a batch that got no reply."""
        self._kept.append(batch)
        self.exist = True

    def keep_new(
        self,
        digests: Iterable[Any],
        lasts: int,
        first: Batch | None = None,
        origin: _Origin = (0, ""),
    ) -> None:
        """Keeps new items, for ``lasts`` ms at most, which is how long they are remembered. ``first``: the batch
        whose lost answers these are; ``origin``: where they were added."""
        joined = b"".join(map(_bytes_of, digests))
        if joined or first:
            self._kept.append((first, _until(lasts), joined, origin))
            self.exist = True

    def batches_of(self, digests: Iterable[Any]) -> list[Batch]:
        """Copies of the batches without a reply that have one of these items."""
        with self._lock:
            self._look()
            return self._copies(digests)

    def oldest_batches(self) -> list[Batch]:
        """Copies of the batches without a reply that have the oldest items beyond ``MAX_LOST``."""
        with self._lock:
            return self._copies([*islice(self._lost, max(0, len(self._lost) - MAX_LOST))])

    def take_new(self, digests: Iterable[Any]) -> dict[Any, bool]:
        """Removes the items that are known to be new, and answers for them."""
        if not self.exist:
            return {}
        with self._lock:
            self._look()
            found = {key: True for key in digests if self._remove_new(_bytes_of(key))}
            self.exist = False
            # Not in one step, because something may be kept between.
            if self._kept or self._lost or any(self._new.values()):
                self.exist = True
            return found

    def check_room(self, name: str, digests: Iterable[Any]) -> None:
        """Raises TBloomError if too many items are known to be new, and these are others."""
        with self._lock:
            self._look()
            has_room = sum(new.count for new in self._new.values()) < MAX_NEW
            if has_room or any(self._is_new(_bytes_of(key)) for key in digests):
                return
        raise TBloomError(
            f"{name!r}: {MAX_NEW:,} new items of calls that ended in an error wait to be asked for again; "
            "repeat those calls before others (nothing of this one was done)"
        )

    def knows(self, digests: Iterable[Any]) -> bool:
        """True: all of these items are known to be new."""
        with self._lock:
            self._look()
            return all(self._is_new(_bytes_of(key)) for key in digests)

    def forget(self, digests: Iterable[Any]) -> None:
        """Drops the answers to these items."""
        with self._lock:
            self._look()
            for key in digests:
                self._lost.pop(key, None)
                self._remove_new(_bytes_of(key))

    def drop_earlier(self, shard: int, generation: str, has: Callable[[bytes], bool]) -> None:
        """Drops the new items of earlier generations of a shard, now and from now on; ``has``: the shard has the item."""
        with self._lock:
            self._look()
            if generation <= self._generations.get(shard, ""):
                return
            self._generations[shard] = generation
            for new in self._new.values():
                keys = [key for joined in new.values() for key in _parted(joined)]
                for key in filter(has, keys):
                    new.remove(key)

    def clear(self) -> None:
        """Drops them all."""
        with self._lock:
            self._kept.clear()
            self._lost.clear()
            self._new.clear()
            self.exist = False

    def __contains__(self, key: Any) -> bool:
        if not self.exist:
            return False
        with self._lock:
            self._look()
            return key in self._lost or self._is_new(_bytes_of(key))

    def _look(self) -> None:
        """Takes in what was kept since the last look, and drops what is over."""
        while self._kept:
            kept = self._kept[0]
            if isinstance(kept, Batch):
                for key in kept.digests:
                    self._lost.setdefault(key, []).append(kept)
            else:
                first, until, joined, (shard, generation) = kept
                if generation < self._generations.get(shard, ""):
                    joined = b""  # it was cleared meanwhile
                if first is not None:
                    # Another call may have had the answers first, or the caller wants them no more.
                    still = {_bytes_of(key) for key in first.digests if self._has(key, first)}
                    joined = b"".join([key for key in _parted(joined) if key in still])
                self._new.setdefault(until, NewItems()).add(joined)
                self._close(first)
            self._kept.popleft()  # last, for the case of an interrupt
        now = time.monotonic_ns() // 1_000_000
        self._new = {until: new for until, new in self._new.items() if until > now}

    def _has(self, key: Any, batch: Batch) -> bool:
        return batch in self._lost.get(key, ())

    def _close(self, batch: Batch | None) -> None:
        """Removes a batch whose answers are known."""
        for key in batch.digests if batch else ():
            left = [other for other in self._lost.pop(key, ()) if other is not batch]
            if left:
                self._lost[key] = left

    def _copies(self, digests: Iterable[Any]) -> list[Batch]:
        found = {id(batch): batch for key in digests for batch in self._lost.get(key, ())}
        return [replace(batch, digests=[*batch.digests], first=batch) for batch in found.values()]

    def _is_new(self, key: bytes) -> bool:
        return any(new.holds(key) for new in self._new.values())

    def _remove_new(self, key: bytes) -> bool:
        return sum(new.remove(key) for new in self._new.values()) > 0


def _parted(joined: bytes) -> Iterator[bytes]:
    return (joined[at : at + _SIZE] for at in range(0, len(joined), _SIZE))


def _bytes_of(digest: bytes | int) -> bytes:
    return digest if isinstance(digest, bytes) else digest.to_bytes(_SIZE, "big")


def _until(lasts: int) -> int:
    """When an item that is remembered for ``lasts`` ms is dropped: rounded down, by at most a 32nd of that time, so that
    there are few such times."""
    lasts = min(lasts, _KEPT_MS)
    step = 1 << max(0, lasts.bit_length() - 6)
    return (time.monotonic_ns() // 1_000_000 + lasts) // step * step
