"""The local cache: items that are known to be seen, so that the server is not asked for them again.

It keeps only items that are in the filter, and answers only "seen". That stays right until the
current slice ends, because no item leaves the window before. A ``clear()`` by another client is
noticed after ``ttl`` seconds at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable


class _Generations:
    """The digests that the cache has, all found in the filter while one slice was current.

    When the young ones have reached half the cache's size or half its TTL, they become the old ones.
    """

    __slots__ = ("begun", "old", "slice", "young")

    def __init__(self, slice: object) -> None:
        self.slice = slice
        self.young: set[bytes] = set()
        self.old: set[bytes] = set()
        self.begun = time.monotonic()


class LocalCache:
    """At most ``size`` digests, each for at most ``ttl`` seconds; for any number of threads."""

    __slots__ = ("_generations", "_ttl", "hits", "size")

    def __init__(self, size: int, ttl: float) -> None:
        self.size, self._ttl = size, ttl
        #: The number of answers that came from here.
        self.hits = 0
        self._generations = _Generations(None)

    def holds(self, digest: bytes, slice: object) -> bool:
        """True if the cache has the item, for this current slice."""
        known = self._generations
        if slice is not known.slice:
            return False
        if digest not in known.young and digest not in known.old:
            return False
        if time.monotonic() - known.begun > self._ttl / 2:
            self._turn(known)
            if digest not in known.old:
                return False
        self.hits += 1
        return True

    def keep(self, digests: Iterable[bytes], slice: object) -> None:
        """Keeps items that are in the filter, as the server answered while this slice was current."""
        known = self._generations
        if slice is not known.slice:
            known = self._generations = _Generations(slice)
        if time.monotonic() - known.begun > self._ttl / 2:
            self._turn(known)
        for digest in digests:
            if 2 * len(known.young) >= self.size:
                self._turn(known)
            known.young.add(digest)

    def _turn(self, known: _Generations) -> None:
        now = time.monotonic()
        # The oldest of the young ones may have passed the whole TTL.
        known.old = set() if now - known.begun > self._ttl else known.young
        known.young, known.begun = set(), now
