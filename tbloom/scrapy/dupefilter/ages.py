"""``TBLOOM_SEEN_AGES``: how old the duplicates of a crawl are."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tbloom import FilterInfo

#: The size of the sample: one or two calls at the end of the crawl.
_SAMPLE = 1000


class SeenAges:
    """A random sample of a crawl's duplicates, by their fingerprints."""

    def __init__(self) -> None:
        self._sample: list[bytes] = []
        self._noted = 0

    def note(self, fingerprint: bytes) -> None:
        """Takes a duplicate into account."""
        self._noted += 1
        if len(self._sample) < _SAMPLE:
            self._sample.append(fingerprint)
        elif (place := random.randrange(self._noted)) < _SAMPLE:  # noqa: S311
            self._sample[place] = fingerprint

    def stats(self, seen: Any, info: FilterInfo) -> Mapping[int, int]:
        """The number of the sample's duplicates by age, in slices; 0: the current slice."""
        labels = [slice.label for slice in reversed(info.slices)]
        periods = filter(None, seen.last_seen_many(self._sample))
        return Counter(labels.index(period.label) for period in periods if period.label in labels)
