"""What a client keeps of calls whose answers did not reach their caller."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from tbloom import TBloomError
from tbloom.engine import pending
from tbloom.engine.batches import Batch
from tbloom.engine.pending import NewItems, PendingAnswers
from tbloom.engine.tokens import LANE_TTL_MS, LanePool


def digests(number: int, first: int = 0) -> list[bytes]:
    return [b"%016d" % i for i in range(first, first + number)]


def test_a_new_item_takes_16_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the buckets 3 MB at most, however many items they have."""
    monkeypatch.setattr(pending, "_until", lambda _: 1 << 62)  # all in the same buckets
    answers, number = PendingAnswers(), 120_000
    tracemalloc.start()
    try:
        for first in range(0, number, 1000):
            answers.keep_new(digests(1000, first), LANE_TTL_MS)
            assert digests(1, first)[0] in answers
        assert tracemalloc.get_traced_memory()[0] < 16 * number + 3_000_000
    finally:
        tracemalloc.stop()
    assert number == sum(new.count for new in answers._new.values())


def test_new_items_are_each_taken_once() -> None:
    answers = PendingAnswers()
    answers.keep_new(digests(1000), LANE_TTL_MS)
    assert digests(10) == [*answers.take_new([*digests(10), *digests(10, 5000)])]
    assert {} == answers.take_new(digests(10))
    assert digests(990, 10) == [*answers.take_new(digests(1000))]
    assert not answers.exist


def test_a_digest_that_lies_across_two_others_is_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending, "_BUCKETS", 1)
    new = NewItems()
    new.add(b"0123456789abcdef0123456789ABCDEF")
    assert not new.holds(b"89abcdef01234567")
    assert not new.remove(b"89abcdef01234567")
    assert 2 == new.count
    assert new.remove(b"0123456789ABCDEF")
    assert new.holds(b"0123456789abcdef")


def test_a_new_item_is_kept_for_an_hour_and_no_longer_than_it_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [10**15]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    for lasts, kept in ((10**9, LANE_TTL_MS), (2000, 1500), (1, 0)):
        answers = PendingAnswers()
        answers.keep_new(digests(1), lasts)
        now[0] += max(0, kept - 1) * 1_000_000
        assert digests(1)[0] in answers
        now[0] += min(lasts, 2 * LANE_TTL_MS) * 1_000_000
        assert digests(1)[0] not in answers
        assert {} == answers.take_new(digests(1))
        assert not answers.exist


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(pending, "MAX_LOST", 100)
    monkeypatch.setattr(pending, "MAX_NEW", 100)
    return 100


def test_of_too_many_lost_answers_the_oldest_are_asked_for_first(few: int) -> None:
    answers, lanes = PendingAnswers(), LanePool()
    for first in range(0, few + 25, 10):
        answers.keep_lost(Batch(digests(10, first), token=lanes.take(), copies=1))
    assert [] == answers.batches_of(digests(1, 1000))
    oldest = answers.oldest_batches()
    assert [digests(10), digests(10, 10), digests(10, 20)] == [batch.digests for batch in oldest]
    assert digests(1)[0] in answers
    for batch in oldest:
        answers.keep_new(batch.digests[:3], LANE_TTL_MS, batch.first)
    assert digests(3, 20) == [*answers.take_new(digests(10, 20))]
    assert [] == answers.oldest_batches()


def test_of_two_who_ask_for_lost_answers_one_gets_them(few: int) -> None:
    answers = PendingAnswers()
    answers.keep_lost(Batch(digests(few), token=LanePool().take(), copies=1))
    [one], [other] = answers.batches_of(digests(1)), answers.batches_of(digests(1, 7))
    answers.keep_new(one.digests, LANE_TTL_MS, one.first)
    assert digests(few) == [*answers.take_new(digests(few))]
    answers.keep_new(other.digests, LANE_TTL_MS, other.first)
    assert {} == answers.take_new(digests(few))


def test_too_many_new_items_are_asked_for_before_others(few: int) -> None:
    answers = PendingAnswers()
    answers.keep_new(digests(few - 1), LANE_TTL_MS)
    answers.check_room("name", digests(1, 1000))
    answers.keep_new(digests(1, few), LANE_TTL_MS)
    with pytest.raises(TBloomError, match="'name': 100 new items"):
        answers.check_room("name", digests(1, 1000))
    answers.check_room("name", [*digests(1, 1000), *digests(1)])
    answers.forget(digests(1))
    answers.check_room("name", digests(1, 1000))


def test_new_items_of_an_earlier_generation_are_dropped_also_if_they_are_kept_later() -> None:
    """Those of the shard that has begun anew."""
    answers = PendingAnswers()
    for few in (digests(4), digests(4, 4)):
        answers.keep_new(few, LANE_TTL_MS, origin=(0, "1"))
        answers.drop_earlier(0, "2", lambda key: key not in digests(2))
    answers.drop_earlier(0, "1", lambda _: True)
    answers.keep_new(digests(1, 8), LANE_TTL_MS, origin=(0, "2"))
    answers.keep_new(digests(1, 9), LANE_TTL_MS, origin=(1, "1"))
    left = [*digests(2), *digests(2, 8)]
    assert left == [*answers.take_new(digests(10))]
