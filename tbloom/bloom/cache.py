"""The local cache of seen items, which need not be sent to the server again.

It has only items that are in the filter, and gives only the answer "seen". This answer stays right until the current slice
ends, because no item leaves the window earlier. A ``clear()`` by another client is noticed after at most ``ttl`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple


class _Known(NamedTuple):
    """Digests that were found in the filter while one slice was current."""

    slice: object
    until: float
    digests: set[bytes]


class LocalCache:
    """A cache of at most ``size`` digests for at most ``ttl`` seconds. Any number of threads may use it.

    It is emptied at the start of each slice, when it is full, and after ``ttl`` seconds.
    """

    __slots__ = ("_known", "_ttl", "hits", "size")

    def __init__(self, size: int, ttl: float) -> None:
        self._ttl = ttl
        self.size: int = size
        #: The number of answers from this cache.
        self.hits: int = 0
        self._known = _Known(None, 0.0, set())

    def holds(self, digest: bytes, slice: object) -> bool:
        """Return True if the cache has the item. ``slice`` is the current slice."""
        known = self._known
        if (
            slice is not known.slice
            or digest not in known.digests
            or time.monotonic() > known.until
        ):
            return False
        self.hits += 1
        return True

    def keep(self, digests: Iterable[bytes], slice: object) -> None:
        """Keep items that the server has found in the filter. ``slice`` was current at that time."""
        known, now = self._known, time.monotonic()
        for digest in digests:
            if slice is not known.slice or now > known.until or len(known.digests) >= self.size:
                known = self._known = _Known(slice, now + self._ttl, set())
            known.digests.add(digest)
