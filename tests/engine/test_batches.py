"""The memory of pending answers is bounded."""

from __future__ import annotations

from tbloom.engine.batches import MAX_PENDING, Batch, PendingAnswers
from tbloom.engine.tokens import LanePool


def test_the_newest_pending_answers_are_kept() -> None:
    """As many as may be, whether they come from one call or from many."""
    pending, lanes, more = PendingAnswers(), LanePool(), 1000
    for start in range(0, MAX_PENDING + more, 500):
        digests = list(range(start, start + 500))
        pending.keep([Batch(digests, token=lanes.take(), copies=1)])
    kept = [digest in pending for digest in range(MAX_PENDING + more)]
    assert [False] * more + [True] * MAX_PENDING == kept
    [batch], _ = pending.take_batches([0, 1, MAX_PENDING])
    assert MAX_PENDING in batch.digests
    assert MAX_PENDING not in pending
