"""The player, which each process of a run has one of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.simulation.network import Player
from tests.simulation.server import running


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
    clock = _player.server.clock
    with clock.shown_to_clients():
        yield _player
