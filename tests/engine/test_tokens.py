"""Lanes: one call at a time, whatever threads and forks do."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tbloom.engine.tokens import Lane, LanePool
from tests.helpers.forks import in_child, needs_fork

THREADS = 8


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can, so that races happen."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def name(lane: Lane) -> tuple[str, int]:
    """What the server knows the lane by."""
    return lane.client, lane.lane


def in_threads(work: Callable[[], None]) -> None:
    """Does the work in several threads at once."""
    start = threading.Barrier(THREADS)

    def run() -> None:
        start.wait()
        work()

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_numbers_rise() -> None:
    """A lane counts its calls, from 1, through every hand that it passes."""
    lanes = LanePool()
    numbers = []
    for _ in range(3):
        lane = lanes.take()
        numbers += [lane.next_number(), lane.next_number()]
        lanes.give_back(lane)
    assert [1, 2, 3, 4, 5, 6] == numbers


def test_lanes_are_used_again() -> None:
    """One call after the other needs one lane, so a server keeps few keys."""
    lanes = LanePool()
    used = set()
    for _ in range(100):
        lane = lanes.take()
        used.add(name(lane))
        lanes.give_back(lane)
    assert len(used) == 1


def test_taken_lanes_differ() -> None:
    """A lane that was not given back is nobody else's."""
    lanes = LanePool()
    for lane in [lanes.take() for _ in range(10)]:
        lanes.give_back(lane)
    assert len({name(lanes.take()) for _ in range(100)}) == 100


def test_clients_differ() -> None:
    """Every filter object is a client of its own."""
    assert len({LanePool().take().client for _ in range(100)}) == 100


@pytest.mark.usefixtures("eager_threads")
def test_threads_never_share_a_lane() -> None:
    """However threads take turns, a lane is in one hand at a time and repeats no number."""
    lanes = LanePool()
    held: set[tuple[str, int]] = set()
    lock = threading.Lock()
    shared, tokens = [], []

    def work() -> None:
        for _ in range(500):
            lane = lanes.take()
            with lock:
                if name(lane) in held:
                    shared.append(name(lane))
                held.add(name(lane))
                tokens.append((*name(lane), lane.next_number()))
            time.sleep(0)  # lets another thread have a go while the lane is held
            with lock:
                held.discard(name(lane))
            lanes.give_back(lane)

    in_threads(work)
    assert [] == shared
    assert THREADS * 500 == len(set(tokens))
    assert len({token[:2] for token in tokens}) <= THREADS


@needs_fork
def test_forked_child_is_another_client() -> None:
    """A child has a client id of its own, also where its parent had lanes to spare."""
    lanes = LanePool()
    lane = lanes.take()
    lanes.give_back(lane)
    children = {in_child(lambda: lanes.take().client) for _ in range(3)}
    assert len(children | {lane.client}) == 4
    assert lane.client == lanes.take().client


@needs_fork
@pytest.mark.parametrize("first", ["give back", "take"])
def test_parent_s_lane_given_back_in_child(first: str) -> None:
    """A lane that was out while the process forked is the parent's: the child never uses it."""
    lanes = LanePool()
    lane = lanes.take()

    def child() -> list[str]:
        taken = [lanes.take()] if first == "take" else []
        lanes.give_back(lane)
        return [lane.client for lane in [*taken, *(lanes.take() for _ in range(3))]]

    clients = Counter(in_child(child))
    assert len(clients) == 1
    assert lane.client not in clients


@needs_fork
@pytest.mark.usefixtures("eager_threads")
def test_threads_of_a_forked_child() -> None:
    """Threads that are a child's first to take a lane get neither the parent's nor each other's."""
    lanes = LanePool()
    spare = [lanes.take() for _ in range(THREADS)]
    for lane in spare:
        lanes.give_back(lane)

    def child() -> list[tuple[str, int]]:
        taken: list[Lane] = []
        in_threads(lambda: taken.append(lanes.take()))
        return [name(lane) for lane in taken]

    for _ in range(100):
        taken = [(client, lane) for client, lane in in_child(child)]
        assert THREADS == len(set(taken))
        assert spare[0].client not in {client for client, _ in taken}
