"""Every promise under every order of calls, lost replies, late copies, errors, clocks and restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulation.cases import CASES, PLAYED
from tests.simulation.network import Player
from tests.simulation.playing import by_chance, replay, shortest
from tests.simulation.server import running
from tests.simulation.world import Broken

#: How many schedules are played of each case; `make check` plays more.
_SCHEDULES = int(os.environ.get("TBLOOM_SIMULATION_SCHEDULES", "8"))


@pytest.fixture(scope="session")
def _player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    with running(tmp_path_factory.mktemp("played")) as server:
        player = Player(server)
        with closing(player.loop):
            yield player


@pytest.fixture
def player(_player: Player, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    """Plays schedules; tbloom looks at their clocks, and waits for nothing."""
    monkeypatch.setattr("tbloom.engine.retries._LONGEST_PAUSE", 0.0)
    for module in ("exact.dispatcher", "distinct.dispatcher"):  # each case sets it
        monkeypatch.setattr(f"tbloom.{module}._MAX_ENTRIES", 80)
    with _player.server.clock.shown_to_clients():
        yield _player


def _schedules() -> Iterator[tuple[str, list[str]]]:
    """The schedules in found.txt: of each the case, and the moves."""
    for block in Path(__file__).with_name("found.txt").read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            yield lines[0], [move.strip() for move in "".join(lines[1:])[:-1].split(";")]


@pytest.mark.parametrize(("name", "moves"), [*_schedules()])
def test_a_schedule_that_found_something(player: Player, name: str, moves: list[str]) -> None:
    """Or that a change once broke."""
    assert moves == CASES[name].play(player, replay(moves)).log[: len(moves)], (
        "is not possible any more"
    )


@pytest.mark.parametrize("name", PLAYED)
def test_no_schedule_breaks_a_promise(player: Player, name: str) -> None:
    """A release that is cancelled at any moment can be repeated (redis-py#3847), for example."""
    player.undecided = 0
    for seed in range(_SCHEDULES):
        try:
            CASES[name].play(player, by_chance(seed))
        except Broken as broken:
            moves = "".join(f"  {move};\n" for move in _shrunk(player, broken))
            raise AssertionError(f"{broken}\nFor found.txt:\n\n{name}\n{moves}") from broken
    assert player.undecided <= _SCHEDULES / 4, "of too many schedules, too much is possible"


def _shrunk(player: Player, broken: Broken) -> list[str]:
    """The shortest schedule that fails in any way."""

    def fails(moves: Sequence[str]) -> bool:
        try:
            broken.case.play(player, replay(moves))
        except Broken:
            return True
        return False

    return shortest(broken.moves, fails)
