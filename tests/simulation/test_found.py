"""Schedules that have once failed, each with the moves that led there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.simulation.cases import CASES
from tests.simulation.choosing import replay
from tests.simulation.server import Server, running

#: The case, and its moves; ``test_schedules.py`` prints them.
FOUND: list[tuple[str, list[str]]] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("simulation")) as server:
        yield server


@pytest.mark.parametrize(("name", "moves"), FOUND)
def test_it_fails_no_more(server: Server, name: str, moves: Sequence[str]) -> None:
    CASES[name].play(server, replay(moves))
