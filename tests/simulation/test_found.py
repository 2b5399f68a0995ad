"""Schedules that have found something, or that a change once broke: each is played again."""

from __future__ import annotations

import pytest

from tests.simulation.player import Player
from tests.simulation.playing import CASES
from tests.simulation.schedules import replay

Schedule = tuple[str, list[str]]

#: By case; a failure of ``test_played`` prints its schedule in this form.
FOUND: list[Schedule] = [
    (
        "two clients add an item",
        ["A asks", "A: cut off, 0 of 1 executed, the others late, then error", "B asks"],
    ),
    (  # The copy of a claim comes after another client's release, and its caller got the answer BUSY.
        "two clients work on an item, one releases it",
        ["A asks", "B asks", "B is answered",
         "B: cut off, 0 of 1 executed, the others late, then again"],
    ),
    (  # The copy comes between the release of a claim without an answer, and the next claim.
        "two threads of an object work on an item, one releases it",
        ["A asks", "A is answered", "A: cut off, 0 of 1 executed, the others late, then error",
         "A asks again", "A is answered", "a late request arrives"],
    ),
    (  # Two threads of an object fetch one lost answer, and ask in other numbers of slices.
        "threads of an object ask in other numbers of slices",
        ["A asks", "B asks", "B is answered", "A is answered", "B is answered", "the slice ends",
         "A: cut off, 0 of 1 executed, the others lost, then error", "B asks", "A asks again", "A is answered"],
    ),
    (  # The same, by tasks whose items go together.
        "tasks whose items go together",
        ["H asks", "A asks", "C asks", "H is answered", "A is answered", "A is answered", "D asks", "the slice ends",
         "H: refused, BUSY, then error", "A is answered", "H asks again"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "moves"), FOUND)
def test_a_schedule_that_found_something(player: Player, name: str, moves: list[str]) -> None:
    CASES[name].play(player, replay(moves))
