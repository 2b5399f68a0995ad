"""The account of a replay (bench/replay.py): in small, exact though everything is killed; and what it finds in wrong answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import asking
from bench.account import Account, account
from bench.asking import Graph, Plan
from bench.replay import CRAWLER, REPLICA, SERVER, replay
from tests.helpers.making import needed

#: Times of calls (s), for slices of 10 seconds, of which 3 are live.
BEGAN = 1_700_000_000


def graph_of(pages: int, seed: int) -> Graph:
    """Pages that link to a few others often, and to most of them seldom."""
    rng = random.Random(seed)
    links = [
        [min(int(rng.paretovariate(0.5)) - 1, pages - 1) for _ in range(rng.randint(1, 40))]
        for _ in range(pages)
    ]
    return Graph([f"page/{number}.html" for number in range(pages)], links)


@pytest.mark.check
@pytest.mark.timeout(300)
def test_each_link_is_new_once_in_the_window_though_crawlers_server_and_replica_are_killed() -> (
    None
):
    """Threads and tasks of four processes ask about 100,000 links, while 8 slices begin. The log is written before each reply."""
    needed()
    graph, crawls = graph_of(300, 1), [random.Random(n).randrange(4) for n in range(16)]
    kills = {CRAWLER: 2, SERVER: 1, REPLICA: 1}
    found = replay(
        graph,
        crawls=crawls,
        processes=4,
        lines=2,
        slice_seconds=2,
        slices=3,
        pause=1,
        kills=kills,
        fsync="always",
        error_rate=1e-9,
    )
    print(found)
    told = found.account
    assert kills == found.kills
    assert (0, 0, 0) == (told.twice, told.lost, told.false), told.examples
    # Slices have left the window, so links were new again.
    reached = np.unique(np.concatenate([graph.links(page) for page in range(300)]))
    assert told.new > 1.5 * 4 * len(reached)
    assert [] == found.differing


#: One page with two links.
Calls = list[tuple[float, str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Account]:
    """Make the account of these calls about one page with two links: a time, and an answer for each link (1: new)."""

    def told(calls: Calls, *, kills: tuple[float, ...] = (), loses: float = 0) -> Account:
        graph = Graph(["a", "b"], [[0, 1]])
        graph.save(tmp_path / "graph.json")
        plan = Plan(str(tmp_path), "", [0] * len(calls), 1, 1, 10, 3)
        line = asking._Line(plan, 0)
        for at, answers in calls:
            now = round((BEGAN + at) * 1e6)
            monkeypatch.setattr(asking, "_now", lambda now=now: now + 1000)
            if answers == "killed":
                line = asking._Line(plan, 0)
            else:
                line.record(now, [answer == "1" for answer in answers])
        return account(plan, [round((BEGAN + kill) * 1e6) for kill in kills], loses)

    return told


@pytest.mark.parametrize(
    ("calls", "given", "expected"),
    [
        ([(1, "11"), (2, "00"), (29, "00")], {}, {"new": 2}),
        ([(1, "11"), (31, "11")], {}, {"new": 4}),
        ([(1, "11"), (2, "10")], {}, {"new": 3, "twice": 1}),
        ([(1, "11"), (29, "01")], {}, {"new": 3, "twice": 1}),
        ([(1, "10")], {}, {"new": 1, "false": 1}),
        ([(1, "11"), (31, "10"), (32, "00")], {}, {"new": 3, "false": 1}),
        ([(1, "11"), (2, "11")], {"kills": (1.5,), "loses": 1}, {"new": 4, "lost": 2}),
        ([(1, "11"), (2, "11")], {"kills": (1.5,)}, {"new": 4, "twice": 2}),
        ([(1, "11"), (8, "11")], {"kills": (7,), "loses": 1}, {"new": 4, "twice": 2}),
        ([(1, "11"), (31, "killed"), (32, "00")], {}, {"new": 2, "died": 2}),
    ],
    ids=[
        "seen while the window lasts",
        "new again after it",
        "new twice",
        "new twice, in the oldest slice",
        "seen before it was new",
        "seen after the window: once in a slice",
        "lost with the end of the log",
        "the log loses nothing",
        "lost, though it was logged long before",
        "the answer died with its process",
    ],
)
def test_the_account_tells_right_answers_from_wrong_ones(
    told: Callable[..., Account], calls: Calls, given: dict[str, Any], expected: dict[str, int]
) -> None:
    found = told(calls, **given)
    names = "new", "twice", "lost", "died", "false"
    assert expected == {name: getattr(found, name) for name in names if getattr(found, name)}
