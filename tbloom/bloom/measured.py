"""A proportion with its 95 % confidence interval."""

from __future__ import annotations

import math
from typing import NamedTuple

#: 95 % of a normal distribution is within this number of standard deviations.
_DEVIATIONS = 1.959964


class Measured(NamedTuple):
    """``hits`` out of ``of``."""

    hits: int
    of: int

    @property
    def rate(self) -> float:
        """The proportion, 0 to 1; 0 if ``of`` is 0."""
        return self.hits / self.of if self.of else 0.0

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self._bound(self.hits) if self.hits else 0.0

    @property
    def high(self) -> float:
        """The upper end of the 95 % interval."""
        return 1 - self._bound(self.of - self.hits) if self.hits < self.of else 1.0

    def _bound(self, hits: int) -> float:
        # Wilson's score interval with continuity correction (Newcombe 1998, method 4). Without the
        # correction it is too narrow where few hits are expected, as here.
        z, n = _DEVIATIONS, self.of
        spread = z * z - 2 - 1 / n + 4 * hits * (1 - hits / n + 1 / n)
        return max(0.0, (2 * hits + z * z - 1 - z * math.sqrt(spread)) / (2 * (n + z * z)))
