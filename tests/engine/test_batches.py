"""Lanes, and what a client keeps of calls whose answers did not reach their caller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tbloom import TBloomError
from tbloom.engine import pending
from tbloom.engine.dispatcher import Dispatcher
from tbloom.engine.pending import Batch, PendingAnswers, now_ms
from tbloom.engine.retries import Retries
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS, LanePool
from tests.helpers.making import in_child, needs_fork


def digests(number: int, first: int = 0) -> list[bytes]:
    return [b"%016d" % i for i in range(first, first + number)]


def keep_new(
    answers: PendingAnswers, new: list[bytes], lasts: int = LANE_TTL_MS, **where: Any
) -> None:
    """Keeps new items whose answers did not reach their caller."""
    answers.keep(Batch(new, answers="1" * len(new), **where), lasts)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The monotonic clock (ns), which the test sets."""
    clock = [10**18]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    return clock


@pytest.mark.parametrize("lasts", [10**9, 2000, 1])
def test_what_is_kept_is_kept_for_an_hour_and_no_longer_than_it_is_remembered(
    clock: list[int], lasts: int
) -> None:
    answers, [new, lost] = PendingAnswers(), digests(2)
    keep_new(answers, [new], lasts)
    answers.keep(Batch([lost], token=LanePool().take(), sent=now_ms()), lasts)
    clock[0] += (min(lasts, LANE_TTL_MS) - 1) * 1_000_000
    assert new in answers
    assert lost in answers
    clock[0] += 1_000_000
    assert new not in answers
    assert lost not in answers
    assert [] == answers.batches_of([lost])
    assert {} == answers.take_new([new])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(pending, "MAX_LOST", 100)
    monkeypatch.setattr(pending, "MAX_NEW", 100)
    return 100


def test_too_many_new_items_are_asked_for_before_others(few: int) -> None:
    answers = PendingAnswers()
    keep_new(answers, digests(few - 1))
    answers.check_room("name", digests(1, 1000))
    keep_new(answers, digests(1, few))
    with pytest.raises(TBloomError, match="'name': 100 new items"):
        answers.check_room("name", digests(1, 1000))
    answers.check_room("name", [*digests(1, 1000), *digests(1)])
    answers.forget(digests(1))
    answers.check_room("name", digests(1, 1000))


def test_new_items_of_another_generation_are_dropped_also_if_they_are_kept_later() -> None:
    """Than their shard's present one. A generation has no order: a lower one may be later."""
    for present, other in (("1", "2"), ("2", "1")):
        answers = PendingAnswers()
        for first in (0, 4):
            keep_new(answers, digests(2, first), shard=0, generation=other)
            keep_new(answers, digests(2, first + 2), shard=1, generation=other)
            answers.note_generation(0, present)
        keep_new(answers, digests(1, 8), shard=0, generation=present)
        assert digests(1)[0] not in answers
        assert not answers.knows(digests(1))
        assert [*digests(2, 2), *digests(3, 6)] == [*answers.take_new(digests(10))]


def test_a_call_that_is_lost_once_its_text_was_sent_may_be_executed_late() -> None:
    """The server did not know the script; a claim has to know of such a copy."""
    call = Script("bloom/add").call(["a key"])
    retries = Retries([call], lambda: 1.0, lambda _: "", resends=False)
    for error in (redis.exceptions.NoScriptError(), redis.ConnectionError()):
        assert not call.is_resent
        retries.next_calls()
        retries.take([error])
    assert call.is_resent


class Quiet(Dispatcher):
    """A dispatcher that sends nothing."""

    _prepare = _accept = _rest_of = _learn_generation = None  # type: ignore[assignment]


@needs_fork
def test_a_child_leaves_pending_answers_to_its_parent() -> None:
    dispatcher = Quiet("a")
    digest = b"a digest's bytes"
    keep_new(dispatcher.pending_answers, [digest])
    assert in_child(lambda: digest in dispatcher.pending_answers) is False
    assert [digest] == [*dispatcher.pending_answers.take_new([digest])]
