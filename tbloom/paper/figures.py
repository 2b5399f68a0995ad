"""All figures of the paper, and what is promised of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.paper.crawls import Crawls
    from tbloom.paper.memory import Memory
    from tbloom.paper.racing import Race
    from tbloom.paper.rates import Best, WindowRate

#: A measured rate is the computed one, but for this share of it.
_TOLERANCE = 0.15
#: What the paper found for its daily crawls.
_PAPERS_RATE = 1e-4


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    hours: Crawls
    days: Crawls
    #: The rate of a window as the daily crawls have it.
    full: WindowRate
    race: Race
    overfilled: WindowRate
    best: list[Best]
    memory: Memory

    def broken(self) -> list[str]:
        """A sentence for each figure that is not as promised."""
        return [*self.hours.broken, *self.days.broken, *self._broken()]

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "hours": self.hours.as_dict(),
            "days": self.days.as_dict(),
            "full": self.full._asdict(),
            "race": self.race._asdict(),
            "overfilled": self.overfilled._asdict(),
            "best": [one._asdict() for one in self.best],
            "memory": self.memory.as_dict(),
        }

    def _broken(self) -> Iterator[str]:
        if self.race.tbloom != self.race.urls:
            yield f"{self.race.urls} URLs were new {self.race.tbloom} times."
        if self.full.measured >= _PAPERS_RATE:
            yield f"The window of the daily crawls has an error rate of {self.full.measured}."
        rates = [(one.tbloom, one.seen / one.asked) for one in self.best if one.asked]
        for computed, measured in [*rates, (self.overfilled.union, self.overfilled.measured)]:
            if abs(measured - computed) > _TOLERANCE * computed:
                yield f"An error rate is {measured:.4f}, computed {computed:.4f}."
