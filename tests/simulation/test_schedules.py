"""Every order of calls, lost replies, late copies, cancellations, clocks and clears keeps the accounts.

All schedules of small cases with one fault (as many as the time allows), and random ones of others, by a seed:
``TBLOOM_SIMULATION_SEED``, or a new one that is printed. ``TBLOOM_SIMULATION_SECONDS`` is the time for each case. A schedule that fails is shortened, and printed for ``test_found.py``.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from tests.simulation import choosing
from tests.simulation.cases import CASES, LARGE, SMALL, Case, Failed
from tests.simulation.choosing import Choose
from tests.simulation.server import Server, running

SEED = int(os.environ.get("TBLOOM_SIMULATION_SEED") or random.SystemRandom().randrange(10**9))
#: For each case (s): in `make test`, and in `make check`.
_TIME = float(os.environ.get("TBLOOM_SIMULATION_SECONDS", "0"))
SECONDS, LONG_SECONDS = _TIME or 1.5, _TIME or 8.0
#: The server is emptied after so many schedules.
_EMPTIED = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("simulation")) as server:
        yield server


def play(server: Server, case: Case, schedules: Iterable[Choose], seconds: float) -> None:
    """Plays schedules for so long, or all; fails with the shortest one that fails as the first did."""
    end, number = time.monotonic() + seconds, 0
    for choose in schedules:
        number += 1
        try:
            case.play(server, choose)
        except Failed as failed:
            pytest.fail(explained(server, case, failed))
        if number % _EMPTIED == 0:
            server.client.flushall()
        if time.monotonic() > end:
            break
    print(f"{case.name}: {number:,} schedules (TBLOOM_SIMULATION_SEED={SEED})")


def explained(server: Server, case: Case, failed: Failed) -> str:
    """What failed, and the moves for ``test_found.py``."""

    def fails(moves: Sequence[str]) -> bool:
        try:
            case.play(server, choosing.replay(moves))
        except Failed as other:
            return str(other)[:40] == str(failed)[:40]
        return False

    moves = choosing.shortest(failed.moves, fails)
    lines = "".join(f"    {move!r},\n" for move in moves)
    return f"{failed} (TBLOOM_SIMULATION_SEED={SEED})\n({case.name!r}, [\n{lines}]),"


def by_name(cases: Iterable[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@by_name(SMALL)
def test_small_cases(server: Server, case: Case) -> None:
    """One fault: all schedules, or as many as the time allows."""
    play(server, case, choosing.exhaust(), SECONDS)


@pytest.mark.check
@by_name(SMALL)
def test_small_cases_with_two_faults(server: Server, case: Case) -> None:
    play(server, replace(case, faults=2), choosing.sample(SEED), LONG_SECONDS)


@by_name(LARGE)
def test_large_cases(server: Server, case: Case) -> None:
    play(server, case, choosing.sample(SEED), SECONDS)


@pytest.mark.check
@by_name(LARGE)
def test_large_cases_for_longer(server: Server, case: Case) -> None:
    play(server, case, choosing.sample(SEED + 10**9), LONG_SECONDS)


def test_all_schedules_are_played_once() -> None:
    """Three choices of two, then one of three: 24 schedules, each another one."""
    played = [
        tuple(choose(names) for names in ("ab", "ab", "ab", "xyz")) for choose in choosing.exhaust()
    ]
    assert {*itertools.product("ab", "ab", "ab", "xyz")} == {*played}
    assert 24 == len(played)


def test_a_seed_repeats_its_schedules(server: Server) -> None:
    case = CASES["bloom: four callers"]
    first, second = (
        [case.play(server, choose).log for choose in itertools.islice(choosing.sample(7), 5)]
        for _ in range(2)
    )
    assert first == second


def test_a_failure_is_told_by_its_shortest_moves(server: Server) -> None:
    case = CASES["bloom: two clients add one item"]

    fault = "B loses the connection, gets an error"

    def fails(moves: Sequence[str]) -> bool:
        return fault in case.play(server, choosing.replay(moves)).log

    logs = (case.play(server, choose).log for choose in choosing.sample(1))
    moves = next(log for log in logs if fault in log)
    shortest = choosing.shortest(moves, fails)
    assert fails(shortest)
    assert fault == shortest[-1]
    assert len(shortest) < 6


def test_the_servers_clock_moves(server: Server) -> None:
    """Its clock moves where a compiler is, which CI has."""
    if not server.has_clock:
        pytest.skip("needs a C compiler, to move the server's clock")
    before = server.client.time()[0]
    server.move_clock(100)
    assert 100 <= server.client.time()[0] - before < 110
    server.begin()
    assert server.client.time()[0] - before < 10
