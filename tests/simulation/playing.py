"""Which move comes next: all schedules of a small case, random ones of a large one, a given one; and the shortest that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

#: Chooses one of the moves by its name; the usual ones come first, then ``faults`` of them are faults.
Choose = Callable[[Sequence[str], int], str]


def exhaust() -> Iterator[Choose]:
    """All schedules, one after another."""
    taken: list[tuple[int, int]] = []  # the place of each choice, and among how many
    while True:
        prefix, taken = [place for place, _ in taken], []

        def choose(
            names: Sequence[str],
            _: int,
            prefix: list[int] = prefix,
            taken: list[tuple[int, int]] = taken,
        ) -> str:
            place = prefix[len(taken)] if len(taken) < len(prefix) else 0
            taken.append((place, len(names)))
            return names[place]

        yield choose
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        taken[-1] = taken[-1][0] + 1, taken[-1][1]


def sample(seed: int) -> Iterator[Choose]:
    """Random schedules, the same ones for the same seed."""
    while True:
        own, seed = random.Random(seed), seed + 1
        # Some schedules have their faults early, some late, some few.
        share = own.choice((0.1, 0.25, 0.5))

        def choose(
            names: Sequence[str], faults: int, own: random.Random = own, share: float = share
        ) -> str:
            usual = len(names) - faults
            if faults and (not usual or own.random() < share):
                return names[usual + own.randrange(faults)]
            return names[own.randrange(usual)]

        yield choose


def both(seed: int) -> Iterator[Choose]:
    """All schedules, and a random one before each: those that are near each other in the order of ``exhaust`` are alike."""
    chance = sample(seed)
    for choose in exhaust():
        yield next(chance)
        yield choose


def replay(moves: Sequence[str]) -> Choose:
    """The given moves, without those that are not possible; then the first possible one, until the end."""
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
