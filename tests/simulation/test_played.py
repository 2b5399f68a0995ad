"""Every promise under every order of calls, lost replies, late copies, errors, clocks and restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulation.cases import CASES, PLAYED
from tests.simulation.network import Player
from tests.simulation.playing import both, replay, sample, shortest
from tests.simulation.server import running
from tests.simulation.world import Broken, Case

Record = Callable[[str, object], None]
#: How long all cases together are played (s): in `make test`, and in `make check`.
_SECONDS, _LONG = float(os.environ.get("TBLOOM_SIMULATION_SECONDS", "5")), 200


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
    CASES[name].play(player, replay(moves))


@pytest.mark.parametrize("name", PLAYED)
def test_no_schedule_breaks_a_promise(player: Player, name: str, record_property: Record) -> None:
    """A release that is cancelled at any moment can be repeated (redis-py#3847), for example."""
    _play(player, CASES[name], _SECONDS, record_property)


@pytest.mark.check
@pytest.mark.parametrize("name", PLAYED)
def test_no_schedule_of_many_breaks_a_promise(
    player: Player, name: str, record_property: Record
) -> None:
    _play(player, CASES[name], _LONG, record_property)


def _play(player: Player, case: Case, seconds: float, record: Record) -> None:
    """Plays all schedules of a small case, or random ones, for its share of the time."""
    seed = int(os.environ["TBLOOM_SIMULATION_SEED"])
    print(f"TBLOOM_SIMULATION_SEED={seed}")
    before, played, until = player.undecided, 0, time.monotonic() + seconds / len(PLAYED)
    for choose in both(seed) if case.exhaustive else sample(seed):
        try:
            case.play(player, choose)
        except Broken as broken:
            moves = "".join(f"  {move};\n" for move in _shrunk(player, broken))
            text = f"{broken}\nFor found.txt:\n\n{case.name}\n{moves}"
            raise AssertionError(text) from broken
        played += 1
        if time.monotonic() > until:
            break
    else:
        print("These are all schedules:")
    undecided = player.undecided - before
    print(f"{played:,}, of which {undecided} were not judged, because too much was possible")
    record("schedules", played)


def _shrunk(player: Player, broken: Broken) -> list[str]:
    """The shortest schedule that fails in any way."""

    def fails(moves: Sequence[str]) -> bool:
        try:
            broken.case.play(player, replay(moves))
        except Broken:
            return True
        return False

    return shortest(broken.moves, fails)
