"""Faults of claims that the played network has found (see ``tests/simulation``)."""

from __future__ import annotations

from tbloom import Claim, TimeBloom
from tbloom.bloom.claims.notes import History, Note


def test_pushed_items_are_taken(ours: TimeBloom, theirs: TimeBloom) -> None:
    """The index had them with their notes, so that nobody found them."""
    assert not theirs.take().notes  # the first time, it looks for items of lost sessions
    assert [True, True] == ours.push_many(["a", "b"], ["the work", Note("more work", host="b")])
    assert {"the work", "more work"} == {note.text for note in theirs.take().notes}
    assert Claim.BUSY is ours.claim("a")


def test_work_is_not_over_for_a_session_that_is_at_work(ours: TimeBloom, theirs: TimeBloom) -> None:
    """It was, because sessions were counted only for one that has nothing else to do."""
    assert not ours.take(idle=False).is_over
    assert not theirs.take().is_over
    assert not theirs.take(idle=False).is_over


def test_an_item_that_is_committed_is_not_left(ours: TimeBloom, theirs: TimeBloom) -> None:
    """It was, where another session than its owner had committed it, and one left it to the next, without an end."""
    assert [True, True] == ours.push_many(["a", "b"], ["the work", "other work"])
    assert 2 == len(ours.take().notes)
    assert [False, False] == theirs.commit_many(
        ["a", "b"]
    )  # a session that was taken for dead has done the work
    ours.note_history({"a": History(deaths=1)})
    ours.leave_many(["a", "b"])
    ours._send_heartbeat()
    assert not theirs.take().notes
