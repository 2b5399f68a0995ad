"""Lanes: one call at a time, whatever threads and forks do."""

from __future__ import annotations

from tbloom.engine.exchange import Exchange
from tbloom.engine.tokens import LANE_TTL_MS, Lane, LanePool
from tests.helpers.forks import in_child, needs_fork


def client_of(lane: Lane) -> str:
    """The part of its name that all lanes of a client share."""
    return lane.name.split(":")[0]


def test_numbers_rise() -> None:
    """A lane counts its calls, from 1, through every hand that it passes."""
    lanes = LanePool()
    numbers = []
    for _ in range(3):
        lane = lanes.take()
        numbers.append(lane.number)
        lanes.free.append(lane)
    assert [1, 2, 3] == numbers


class Quiet(Exchange):
    """An exchange that sends nothing."""

    _prepare = _accept = _rest_of = _learn_generation = None  # type: ignore[assignment]


@needs_fork
def test_forked_child_is_another_client() -> None:
    """A child has a client id of its own, also where its parent had lanes to spare."""
    exchange = Quiet("a")
    lane = exchange.lanes.take()
    exchange.lanes.free.append(lane)
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
