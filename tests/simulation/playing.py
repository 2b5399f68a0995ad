"""Plays cases: all schedules of the small ones, random ones of the large ones for a time; and shrinks what fails."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tbloom.engine.retries import Retries
from tests.simulation.cases import Broken, Case
from tests.simulation.crawl_cases import CRAWLS
from tests.simulation.crawls import on_played_time
from tests.simulation.filters import CHANGES, CLAIMS, FILTERS
from tests.simulation.player import Player
from tests.simulation.schedules import both, replay, sample, shortest
from tests.simulation.server import running
from tests.simulation.stores import OTHERS

CASES = {case.name: case for case in [*FILTERS, *CLAIMS, *CHANGES, *OTHERS, *CRAWLS]}


@contextmanager
def open_player() -> Iterator[Player]:
    """A player with a server of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="tbloom-played-") as folder,
        running(Path(folder)) as server,
    ):
        player = Player(server)
        yield player
        player.close()


@contextmanager
def ready(player: Player) -> Iterator[None]:
    """Has tbloom look at the schedule's clocks, and wait for nothing."""
    clock = player.server.clock
    with clock.shown_to_clients(), on_played_time(clock), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Retries, "pause", 0.0)
        for room in ("exact", "distinct"):  # few items are enough to split buckets
            patch.setattr(f"tbloom.{room}.dispatcher._MAX_ENTRIES", 2)
        yield


def play(player: Player, case: Case, seconds: float, seed: int) -> tuple[int, bool]:
    """Plays all schedules of a small case, or random ones, for so long at most: how many, and whether that was all.

    Raises AssertionError with the shortest schedule that fails.
    """
    until, played = time.monotonic() + seconds, 0
    for choose in both(seed) if case.exhaustive else sample(seed):
        try:
            case.play(player, choose)
        except Broken as broken:
            # As it can be pasted into ``test_found``.
            found = "\n".join(f"    {move!r}," for move in shrunk(player, broken))
            text = f"{case.name!r}: {broken}\n(\n    {case.name!r},\n    [\n{found}\n    ],\n)"
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
