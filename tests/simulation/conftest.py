"""The player, which each process of a run has one of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import playing
from tests.simulation.player import Player


@pytest.fixture(scope="session")
def _player() -> Iterator[Player]:
    with playing.open_player() as player:
        yield player


@pytest.fixture
def player(_player: Player) -> Iterator[Player]:
    """Plays schedules."""
    with playing.ready(_player):
        yield _player
