"""Schedules that have found something, or that a change once broke: each is played again (``found.txt``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.network import Player
from tests.simulation.playing import CASES
from tests.simulation.schedules import replay


def schedules() -> Iterator[tuple[str, list[str]]]:
    """Each schedule's case, and its moves."""
    for block in Path(__file__).with_name("found.txt").read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            yield lines[0], [move.strip() for move in "".join(lines[1:])[:-1].split(";")]


@pytest.mark.parametrize(("name", "moves"), [*schedules()])
def test_a_schedule_that_found_something(player: Player, name: str, moves: list[str]) -> None:
    CASES[name].play(player, replay(moves))
