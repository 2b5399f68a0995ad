"""Which move comes next: by chance, or as in a given schedule; and the shortest one that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

#: Chooses one of the moves by its name; the usual ones come first, then ``faults`` of them are faults.
Choose = Callable[[Sequence[str], int], str]


def by_chance(seed: int) -> Choose:
    """A random schedule, the same one for the same seed."""
    own = random.Random(seed)
    # Some schedules have their faults early, some late, some few.
    share = own.choice((0.1, 0.25, 0.5))

    def choose(names: Sequence[str], faults: int) -> str:
        usual = len(names) - faults
        if faults and (not usual or own.random() < share):
            return names[usual + own.randrange(faults)]
        return names[own.randrange(usual)]

    return choose


def replay(moves: Sequence[str]) -> Choose:
    """The given moves, without those that are not possible (for ``shortest``); then the first possible one, until the end."""
    left = list(moves)

    def choose(names: Sequence[str], _: int) -> str:
        while left:
            name = left.pop(0)
            if name in names:
                return name
        return names[0]

    return choose


def shortest(moves: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    """The moves that the failure needs: pieces are left out as long as it still fails (A. Zeller, 2002), the last ones first."""
    found, size = [*moves], max(1, len(moves) // 2)
    while True:
        before, end = len(found), len(found)
        while end > 0:
            fewer = found[: max(0, end - size)] + found[end:]
            if fails(fewer):
                found = fewer
            end = min(end - size, len(found))
        if size == 1 and len(found) == before:
            return found
        size = max(1, size // 2)
