"""What the server has called seen or new, remembered at home for a while, so that it is not asked again.

Only what is in the filter is kept, so the one answer that comes from here, "seen", is as right as the
server's: until the current slice ends, no item leaves the window. A ``clear()`` by somebody else is
noticed after ``age`` seconds at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable


class _Generations:
    """The digests that were found in the filter while one slice was current.

    The younger ones become the older ones when they are half as many, or half as old, as may be.
    """

    __slots__ = ("begun", "old", "slice", "young")

    def __init__(self, slice: object) -> None:
        self.slice = slice
        self.young: set[int] = set()
        self.old: set[int] = set()
        self.begun = time.monotonic()


class LocalCache:
    """Up to ``size`` digests, none for longer than ``age`` seconds; for any number of threads."""

    __slots__ = ("_age", "_generations", "hits", "size")

    def __init__(self, size: int, age: float) -> None:
        self.size, self._age = size, age
        #: How often an answer came from here.
        self.hits = 0
        self._generations = _Generations(None)

    def forget(self) -> None:
        """Forgets everything."""
        self._generations = _Generations(None)

    def holds(self, digest: int, slice: object) -> bool:
        """Whether the item is known to be in the filter while this slice is current."""
        known = self._generations
        if slice is not known.slice:
            return False
        if digest not in known.young and digest not in known.old:
            return False
        if time.monotonic() - known.begun > self._age / 2:
            self._turn(known)
            if digest not in known.old:
                return False
        self.hits += 1
        return True

    def keep(self, digests: Iterable[int], slice: object) -> None:
        """Remembers items that the server has found in the filter, or put there, while this slice was current."""
        known = self._generations
        if slice is not known.slice:
            known = self._generations = _Generations(slice)
        if time.monotonic() - known.begun > self._age / 2:
            self._turn(known)
        for digest in digests:
            if 2 * len(known.young) >= self.size:
                self._turn(known)
            known.young.add(digest)

    def _turn(self, known: _Generations) -> None:
        now = time.monotonic()
        # Those that began longer ago than a whole age are too old by now.
        known.old = set() if now - known.begun > self._age else known.young
        known.young, known.begun = set(), now
