"""Whose claim it is: its session, its number, and for how long both are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tbloom.bloom.hasher import digest
from tests.helpers.flows import replies_to
from tests.helpers.proxy import LossyProxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
A_DAY = 86_400.0


@pytest.fixture
def ours(url: str, name: str) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(url, name, capacity=1000) as ours:
        yield ours


@pytest.fixture
def theirs(url: str, name: str) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(url, name, capacity=1000) as theirs:
        yield theirs


def test_a_commit_ends_no_claim_of_another_session(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, name: str
) -> None:
    """The other one still works on the item, and ends its claim by itself."""
    assert NEW is theirs.claim("a")
    ours.commit("a")
    assert 1 == client.hlen(f"{{{name}}}:claims")
    theirs.commit("a")
    assert 0 == client.hlen(f"{{{name}}}:claims")


def test_a_claim_of_a_later_call_is_released(ours: TimeBloom, theirs: TimeBloom) -> None:
    for item in ("a", "b", "c"):
        assert NEW is ours.claim(item)
        ours.release(item)
        assert NEW is theirs.claim(item)


def test_a_claim_of_a_later_call_whose_reply_is_lost_is_the_same_claim(
    url: str, name: str, theirs: TimeBloom
) -> None:
    with (
        LossyProxy(url, lambda number: number == 2) as proxy,
        TimeBloom.from_url(proxy.url, name, capacity=1000) as ours,
    ):
        assert NEW is ours.claim("a")
        assert NEW is ours.claim("b")
        assert 1 == proxy.lost
        assert BUSY is theirs.claim("b")
        ours.release("b")
        assert NEW is theirs.claim("b")


def test_a_stray_copy_of_a_release_ends_no_later_claim(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """The first copy arrives twice; the item was claimed again meanwhile."""
    assert NEW is ours.claim("a")
    release = ours._protocol.release("a")
    calls = next(release)
    assert [[0, "1"]] == replies_to(client, calls)
    assert NEW is ours.claim("a")
    assert [[0, "0"]] == replies_to(client, calls)
    assert BUSY is theirs.claim("a")


def test_what_was_handed_over_is_busy_for_its_giver(ours: TimeBloom, theirs: TimeBloom) -> None:
    """The same session claims it, but by another call."""
    assert NEW is ours.claim("a")
    ours.hand_over(["a"])
    assert BUSY is ours.claim("a")
    assert NEW is theirs.claim("a", None, "", ours.session)


def test_a_giver_hands_over_its_own_claims_only(
    ours: TimeBloom, theirs: TimeBloom, url: str, name: str
) -> None:
    assert NEW is ours.claim("a")
    with TimeBloom.from_url(url, name, capacity=1000) as third:
        assert BUSY is third.claim("a", None, "", theirs.session)


def test_work_is_left_for_an_hour_after_a_short_window(clockwork: Any, name: str) -> None:
    """The window ends every second; 50 minutes after the session has ended, its work is taken over."""
    dead, ours = (
        TimeBloom.from_url(clockwork.server.url, name, granularity="1s", slices=1, capacity=10)
        for _ in range(2)
    )
    assert NEW is dead.claim("a", note="the work")
    dead.close()
    clockwork.set("2019-06-03 00:50:00")
    assert ["the work"] == ours.take_over()
    ours.close()


def test_work_is_taken_over_within_as_many_slices_as_it_was_claimed(
    clockwork: Any, name: str
) -> None:
    """Another session has committed it a day before: it is done, though not in the newest slice."""
    dead, ours = (
        TimeBloom.from_url(clockwork.server.url, name, session_ttl=A_DAY, capacity=10)
        for _ in range(2)
    )
    assert NEW is dead.claim("a", note="the work")
    ours.commit("a")
    clockwork.set("2019-06-04 12:00:00")
    dead.close()
    assert [] == ours.take_over()
    ours.close()


def test_a_session_is_dead_once_its_time_is_up(clockwork: Any, name: str) -> None:
    """Alive to the last second, dead from the next one on; a claim extends its session's life."""
    ours, theirs = (
        TimeBloom.from_url(clockwork.server.url, name, session_ttl=A_DAY, capacity=10)
        for _ in range(2)
    )
    assert NEW is ours.claim("a")
    clockwork.set("2019-06-03 18:00:00")
    assert NEW is ours.claim("b")
    clockwork.set("2019-06-04 17:59:59")
    assert [BUSY, BUSY] == theirs.claim_many(["a", "b"])
    clockwork.set("2019-06-04 18:00:00")
    assert [NEW, NEW] == theirs.claim_many(["a", "b"])
    for seen in (ours, theirs):
        seen.close()


def test_what_the_living_claim_is_left_to_them(ours: TimeBloom, theirs: TimeBloom) -> None:
    """A search for abandoned work neither takes nor drops it, with a note or without."""
    assert [NEW, NEW] == ours.claim_many(["a", "b"], notes=["the work", ""])
    assert [] == theirs.take_over()
    assert [BUSY, BUSY] == theirs.claim_many(["a", "b"])


def test_only_claims_of_the_dead_are_buried(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """An item that was seen when its claim was looked at may be claimed by a living session by now."""
    bury = theirs._protocol.claims.release([digest(b"a")], "dead")
    calls = next(bury)
    assert NEW is ours.claim("a")
    assert [[0, "0"]] == replies_to(client, calls)
    ours.abandon_many(["a"])  # without a note: released
    assert NEW is ours.claim("a", note="the work")
    ours.close()
    assert [[0, "1"]] == replies_to(client, calls)


def test_a_session_that_ends_without_claims_leaves_nothing(
    ours: TimeBloom, client: redis.Redis, name: str
) -> None:
    ours.claim("a")
    assert [ours.session] == client.hkeys(f"{{{name}}}:sessions")
    ours.commit("a")
    ours.close()
    assert not client.exists(f"{{{name}}}:sessions")


def test_of_a_repeated_item_the_first_note_is_kept(ours: TimeBloom, theirs: TimeBloom) -> None:
    assert [NEW, BUSY] == ours.claim_many(["a", "a"], notes=["first", "second"])
    ours.close()
    assert ["first"] == theirs.take_over()
