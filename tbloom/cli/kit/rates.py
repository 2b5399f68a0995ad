"""New items per second, from the exact counts of a filter's slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tick(NamedTuple):
    """The items that were added between two looks, and the time between them."""

    items: int
    seconds: float


class Rates:
    """The newest ``keep`` ticks."""

    def __init__(self, keep: int) -> None:
        self._ticks: deque[Tick] = deque(maxlen=keep)
        self._at = 0.0
        self._counts: Mapping[str, int] | None = None

    def tick(self, at: float, counts: Mapping[str, int]) -> None:
        """Takes a look: the time (s), and the number of items of each live slice, by label."""
        if self._counts is not None and at > self._at:
            self._ticks.append(Tick(_added(self._counts, counts), at - self._at))
        self._at, self._counts = at, counts

    @property
    def now(self) -> float | None:
        """Items per second in the last tick; None after the first look."""
        return self._ticks[-1].items / self._ticks[-1].seconds if self._ticks else None

    @property
    def mean(self) -> float:
        """Items per second, over all kept ticks."""
        return sum(tick.items for tick in self._ticks) / (self.seconds or 1)

    @property
    def seconds(self) -> float:
        """Total time of the kept ticks."""
        return sum(tick.seconds for tick in self._ticks)

    @property
    def each(self) -> list[float]:
        """The rate of each tick, oldest first."""
        return [tick.items / tick.seconds for tick in self._ticks]


def _added(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Number of items added between two looks.

    A slice that has left the window is ignored. A slice that was cleared counts from 0. An older slice
    that was not in the first look (the window has become longer) counts as unchanged.
    """
    newest = max(before, default="")
    added = 0
    for label, items in now.items():
        known = before.get(label, 0 if label > newest else items)
        added += items - known if items >= known else items
    return added
