"""The states of a lease: the table in ``Lease`` (``tbloom/claims/session.py``), change by change; and claims that pass on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from tbloom import Note, TimeBloom
from tbloom.claims.session import Session
from tests.helpers.flows import flow_of, replies_to, until

ITEM = b"an item's digest"


def _claim(session: Session, answer: str = "1") -> None:
    with session.claiming() as reserved:
        session.reserve(reserved, [ITEM], ())
        session.answered(reserved, dict.fromkeys(reserved.earlier, answer))


def _lose(session: Session) -> None:
    """Claim the item in a call whose caller gets an error."""
    with suppress(ConnectionError), session.claiming() as reserved:
        session.reserve(reserved, [ITEM], ())
        raise ConnectionError


def _take(session: Session) -> None:
    with session.claiming() as reserved:
        session.reserve(reserved, [], ())
        session.took(reserved, [ITEM])


CHANGES: dict[str, Callable[[Session], object]] = {
    "claim": _claim,
    "lose": _lose,
    "take": _take,
    "release": lambda session: session.release([ITEM]),
    "fail": lambda session: session.commit_again([ITEM], 0),
    "refuse": lambda session: session.drop_commits([ITEM]),
    "commit": lambda session: session.committed({ITEM: "1"}),
    "end": lambda session: session.released(session.to_release()),
}
#: The changes that lead to a state, and where one more leads from there. Any other leaves the lease as it is.
STATES: dict[str, tuple[list[str], dict[str, str]]] = {
    "none": (
        [],
        {"claim": "claimed", "take": "claimed", "lose": "to release", "fail": "to commit"},
    ),
    "claimed": (
        ["claim"],
        {"release": "to release", "fail": "claimed, to commit", "commit": "none"},
    ),
    "claimed, to commit": (
        ["claim", "fail"],
        {"release": "to release", "refuse": "claimed", "commit": "none"},
    ),
    "to commit": (
        ["lose", "fail"],
        {
            "claim": "claimed, to commit",
            "take": "claimed, to commit",
            "release": "to release",
            "refuse": "to release",
            "commit": "none",
        },
    ),
    "to release": (
        ["lose"],
        {
            "claim": "claimed",
            "take": "claimed",
            "fail": "to commit",
            "commit": "none",
            "end": "none",
        },
    ),
}


def _state(session: Session) -> str:
    words = ["claimed"] if session.owns(ITEM) else []
    words += ["to commit"] * (ITEM in session.to_commit().get(0, []))
    words += ["to release"] * (ITEM in session.to_release())
    assert session.is_busy is bool(words)
    return ", ".join(words) or "none"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", STATES)
def test_a_change_leads_from_one_state_to_another(state: str, change: str) -> None:
    session, (before, after) = Session(), STATES[state]
    for each in before:
        CHANGES[each](session)
    assert state == _state(session)
    CHANGES[change](session)
    assert after.get(change, state) == _state(session)


def test_a_commit_without_a_claim_leaves_nothing_to_release() -> None:
    for change in ("release", "refuse"):
        session = Session()
        CHANGES["fail"](session)
        CHANGES[change](session)
        assert _state(session) == "none"


@pytest.mark.parametrize(("answer", "last_call"), [("0", 1), ("2", None), ("", 1)])
def test_an_earlier_claim_is_released_unless_another_session_has_the_item(
    answer: str, last_call: int | None
) -> None:
    """Where the later call has claimed nothing, the earlier one may have, whose answer was lost."""
    session = Session()
    _lose(session)
    _claim(session, answer)
    assert last_call == session.to_release().get(ITEM)


def test_a_late_answer_has_its_claims_released_unless_a_later_call_has_them() -> None:
    session = Session()
    with session.claiming() as reserved:
        session.reserve(reserved, [ITEM], ())
    session.committed({ITEM: "1"})
    session.answered(reserved, {ITEM: "1"})
    assert session.to_release() == {ITEM: 1}
    _lose(session)
    session.to_give_back(reserved.call, [ITEM])
    assert session.to_release() == {ITEM: 2}


def test_a_repeated_take_gets_nothing_that_was_taken_again_since(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """Its page is done meanwhile, pushed again, and taken by another thread of its session."""
    ours.take()
    theirs.push("a", "the work")
    take = flow_of(ours, "take")
    call = until(client, take, "claims/take")
    replies_to(client, call)
    ours.commit("a")
    digest = theirs.config.digest("a")
    theirs.run(theirs._claims.push([digest], 7, {digest: Note("again").stored}, again=True))
    assert ["again"] == [note.text for note in ours.take().notes]
    with pytest.raises(StopIteration) as end:
        take.send(replies_to(client, call))
    assert [] == end.value.value.notes
