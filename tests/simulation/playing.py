"""Plays cases: all schedules of the small ones, random ones of the large ones for a time; and shrinks what fails."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.simulation.cases import Broken, Case
from tests.simulation.filters import CLAIMS, FILTERS
from tests.simulation.network import Player
from tests.simulation.schedules import both, replay, sample, shortest
from tests.simulation.stores import OTHERS

CASES = {case.name: case for case in [*FILTERS, *CLAIMS, *OTHERS]}


def play(player: Player, case: Case, seconds: float, seed: int) -> tuple[int, bool]:
    """Plays all schedules of a small case, or random ones, for so long at most: how many, and whether that was all.

    Raises AssertionError with the shortest schedule that fails.
    """
    until, played = time.monotonic() + seconds, 0
    for choose in both(seed) if case.exhaustive else sample(seed):
        try:
            case.play(player, choose)
        except Broken as broken:
            moves = "".join(f"  {move};\n" for move in shrunk(player, broken))
            text = f"{broken}\nFor found.txt:\n\n{case.name}\n{moves}"
            raise AssertionError(text) from broken
        played += 1
        if time.monotonic() > until:
            return played, False
    return played, True


PLAYED = [name for name, case in CASES.items() if case.is_played]


def shrunk(player: Player, broken: Broken) -> list[str]:
    """The shortest schedule that fails in any way."""

    def fails(moves: Sequence[str]) -> bool:
        try:
            broken.case.play(player, replay(moves))
        except Broken:
            return True
        return False

    return shortest(broken.moves, fails)
