"""Every promise under every order of calls, lost replies, late copies, errors, clocks and restarts: the cases of ``playing``."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.simulation import playing
from tests.simulation.network import Player

Record = Callable[[str, object], None]
#: How long all cases together are played (s): in `make test`, and in `make check`.
_SECONDS, _LONG = float(os.environ.get("TBLOOM_SIMULATION_SECONDS", "8")), 200


@pytest.mark.parametrize("name", playing.PLAYED)
def test_no_schedule_breaks_a_promise(player: Player, name: str, record_property: Record) -> None:
    """A release that is cancelled at any moment can be repeated (redis-py#3847), for example."""
    _play(player, name, _SECONDS, record_property)


@pytest.mark.check
@pytest.mark.parametrize("name", playing.PLAYED)
def test_no_schedule_of_many_breaks_a_promise(
    player: Player, name: str, record_property: Record
) -> None:
    _play(player, name, _LONG, record_property)


def _play(player: Player, name: str, seconds: float, record: Record) -> None:
    case, seed = playing.CASES[name], int(os.environ["TBLOOM_SIMULATION_SEED"])
    print(f"TBLOOM_SIMULATION_SEED={seed}")
    before = player.undecided
    played, is_all = playing.play(player, case, seconds / len(playing.PLAYED), seed)
    print(f"{played:,} schedules{', which are all' if is_all else ''}")
    print(f"{player.undecided - before} of them were not judged, because too much was possible")
    record("schedules", played)
