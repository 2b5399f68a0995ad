"""How fast a filter takes items, from the exact counts of its slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tick(NamedTuple):
    """So many items were added in so many seconds."""

    items: int
    seconds: float


class Rates:
    """The newest ``keep`` ticks."""

    def __init__(self, keep: int) -> None:
        self._ticks: deque[Tick] = deque(maxlen=keep)
        self._at = 0.0
        self._counts: Mapping[str, int] | None = None

    def tick(self, at: float, counts: Mapping[str, int]) -> None:
        """At this time (s) the live slices, by label, held so many items."""
        if self._counts is not None and at > self._at:
            self._ticks.append(Tick(_added(self._counts, counts), at - self._at))
        self._at, self._counts = at, counts

    @property
    def now(self) -> float | None:
        """Items per second since the tick before the last; None after the first."""
        return self._ticks[-1].items / self._ticks[-1].seconds if self._ticks else None

    @property
    def mean(self) -> float:
        """Items per second, over all ticks that are kept."""
        return sum(tick.items for tick in self._ticks) / (self.seconds or 1)

    @property
    def seconds(self) -> float:
        """The time of all ticks that are kept."""
        return sum(tick.seconds for tick in self._ticks)

    @property
    def each(self) -> list[float]:
        """The rate of each tick, oldest first."""
        return [tick.items / tick.seconds for tick in self._ticks]


def _added(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Items added in between. A slice that has left the window takes none away; one that was cleared
    counts from 0; one that is older than those before was only not looked at then."""
    newest = max(before, default="")
    added = 0
    for label, items in now.items():
        known = before.get(label, 0 if label > newest else items)
        added += items - known if items >= known else items
    return added
