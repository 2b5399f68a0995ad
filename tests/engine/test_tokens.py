"""Lanes: one call at a time, whatever threads and forks do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tbloom.engine.exchange import Exchange
from tbloom.engine.tokens import LANE_TTL_MS, Lane, LanePool
from tests.helpers.forks import in_child, needs_fork

THREADS = 8


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can, so that races happen."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def client_of(lane: Lane) -> str:
    """The part of its name that all lanes of a client share."""
    return lane.name.split(":")[0]


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
        numbers.append(lane.number)
        lanes.give_back([lane])
    assert [1, 2, 3] == numbers


def test_clients_differ() -> None:
    """Every filter object is a client of its own."""
    assert len({client_of(LanePool().take()) for _ in range(100)}) == 100


@pytest.mark.usefixtures("eager_threads")
def test_threads_never_share_a_lane() -> None:
    """However threads take turns, a lane is in one hand at a time and repeats no number."""
    lanes = LanePool()
    held: set[str] = set()
    lock = threading.Lock()
    shared, tokens = [], []

    def work() -> None:
        for _ in range(500):
            lane = lanes.take()
            with lock:
                if lane.name in held:
                    shared.append(lane.name)
                held.add(lane.name)
                tokens.append((lane.name, lane.number))
            time.sleep(0)  # lets another thread have a go while the lane is held
            with lock:
                held.discard(lane.name)
            lanes.give_back([lane])

    in_threads(work)
    assert [] == shared
    assert THREADS * 500 == len(set(tokens))
    assert len({token[0] for token in tokens}) <= THREADS


class Quiet(Exchange):
    """An exchange that sends nothing."""

    _prepare = _accept = _rest_of = _learn_generation = None  # type: ignore[assignment]


@needs_fork
def test_forked_child_is_another_client() -> None:
    """A child has a client id of its own, also where its parent had lanes to spare."""
    exchange = Quiet("a")
    lane = exchange.lanes.take()
    exchange.lanes.give_back([lane])
    children = {in_child(lambda: client_of(exchange.lanes.take())) for _ in range(3)}
    assert len(children | {client_of(lane)}) == 4
    assert client_of(lane) == client_of(exchange.lanes.take())


@needs_fork
def test_a_child_leaves_pending_answers_to_its_parent() -> None:
    exchange = Quiet("a")
    digest = b"a digest's bytes"
    exchange.pending_answers.keep_new([digest], LANE_TTL_MS)
    assert in_child(lambda: digest in exchange.pending_answers) is False
    assert {digest: True} == exchange.pending_answers.take_new([digest])
