"""Which move comes next: all schedules of a small case, random ones of a large one, or a given one; and the shortest that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

Choose = Callable[[Sequence[str]], str]


def exhaust() -> Iterator[Choose]:
    """All schedules, one after another."""
    taken: list[tuple[int, int]] = []  # the place of each choice, and among how many
    while True:
        prefix, taken = [place for place, _ in taken], []

        def choose(names: Sequence[str], prefix: list[int] = prefix, taken: list[tuple[int, int]] = taken) -> str:  # fmt: skip
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
        yield random.Random(seed).choice
        seed += 1


def replay(moves: Sequence[str]) -> Choose:
    """The given moves, those that can't come left out; then nothing goes wrong any more."""
    left = list(moves)

    def choose(names: Sequence[str]) -> str:
        while left:
            name = left.pop(0)
            if name in names:
                return name
        return names[0]

    return choose


def shortest(moves: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    """The moves without those that it needs not to fail: first halves, then quarters, ... then single ones."""
    found, size = [*moves], max(1, len(moves) // 2)
    while True:
        at, before = 0, len(found)
        while at < len(found):
            fewer = found[:at] + found[at + size :]
            if fails(fewer):
                found = fewer
            else:
                at += size
        if size == 1 and len(found) == before:
            return found
        size = max(1, size // 2)
