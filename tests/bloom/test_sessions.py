"""The sessions that hold claims: their numbers, lifetimes and heartbeats."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tbloom.bloom.hasher import digest
from tbloom.engine.tokens import LANE_TTL_MS
from tests.helpers import servers
from tests.helpers.clock import Clockwork
from tests.helpers.flows import flow_of, lose, replies_to, run, until
from tests.helpers.making import needed
from tests.helpers.proxy import Fault, Proxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
A_DAY = 86_400.0


def test_a_claim_with_the_previous_owner_gets_the_items_that_it_handed_over(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """The giver itself finds it busy, because it asks by another call; of others it says nothing."""
    assert [NEW, NEW] == [ours.claim("a"), theirs.claim("b")]
    ours.hand_over(["a"])
    assert BUSY is ours.claim("a")
    assert BUSY is ours.claim("b", None, "", "another session")
    assert NEW is theirs.claim("a", None, "", ours.session)


def test_a_repeat_gets_a_lost_claim_and_none_that_is_handed_over(ours: TimeBloom) -> None:
    """Nothing can come between, as it could if the lost claim were released first: it is looked up, and then replaced."""
    assert NEW is ours.claim("a")
    ours.hand_over(["a"])
    lose(ours.client, flow_of(ours, "claim", "b"))
    again = flow_of(ours, "claim_many", ["a", "b", "c"])
    assert ([BUSY, NEW, NEW], 2) == run(ours.client, again)


def test_work_is_left_for_an_hour_after_a_short_window(clockwork: Any, open_one: Any) -> None:
    """The window ends every second; 50 minutes after the session has ended, its work is taken over."""
    dead, ours = (open_one(granularity="1s", slices=1) for _ in range(2))
    assert NEW is dead.claim("a", note="the work")
    dead.close()
    clockwork.set("2019-06-03 00:50:00")
    assert ["the work"] == ours.take_over()


def test_work_that_another_session_has_committed_is_not_taken_over(
    clockwork: Any, open_one: Any
) -> None:
    """As when two processes worked on it, because one was taken for dead. It was done a day before: not in the newest slice."""
    dead, ours = (open_one(session_ttl=A_DAY) for _ in range(2))
    assert NEW is dead.claim("a", note="the work")
    ours.commit("a")
    clockwork.set("2019-06-04 12:00:00")
    dead.close()
    assert [] == ours.take_over()
    assert 0 == ours.client.hlen(f"{{{ours.name}}}:claims")


def test_a_session_is_dead_once_its_time_is_up(clockwork: Any, open_one: Any) -> None:
    """Alive to the last second, dead from the next one on; a claim extends its session's life."""
    ours, theirs = (open_one(session_ttl=A_DAY) for _ in range(2))
    assert NEW is ours.claim("a")
    clockwork.set("2019-06-03 18:00:00")
    assert NEW is ours.claim("b")
    clockwork.set("2019-06-04 17:59:59")
    assert [BUSY, BUSY] == theirs.claim_many(["a", "b"])
    clockwork.set("2019-06-04 18:00:00")
    assert [NEW, NEW] == theirs.claim_many(["a", "b"])


def test_a_session_that_comes_back_while_others_search_keeps_its_work(
    clockwork: Any, open_one: Any
) -> None:
    """queue-jobs-worker#6: whether it is dead is looked at once more in the call that takes its work over."""
    late, ours = open_one(session_ttl=A_DAY), open_one()
    late._keep_session = lambda: None  # no heartbeat but the test's
    assert NEW is late.claim("a", note="the work")
    clockwork.set("2019-06-05 12:00:00")
    search = flow_of(ours, "take_over")
    calls = until(ours.client, search, "bloom/claims/claim")
    late._send_heartbeat()
    assert [] == run(ours.client, search, replies_to(ours.client, calls))[0]
    assert BUSY is ours.claim("a")


def test_a_session_that_searches_after_a_long_pause_keeps_its_entry(
    clockwork: Any, open_one: Any
) -> None:
    """Without it, nobody would look for its work if it died now."""
    late, ours = open_one(session_ttl=A_DAY), open_one()
    late._keep_session = lambda: None  # no heartbeat
    assert NEW is late.claim("a", note="the work")
    assert [] == ours.take_over()
    clockwork.set("2019-06-05 12:00:00")
    assert [] == late.take_over()
    assert ["the work"] == ours.take_over()


def test_work_that_one_thread_has_not_got_is_found_by_the_next_search(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """Another thread finds it while the first one asks for it; then the first one's call is lost before it reaches the server."""
    theirs.claim("a", note="the work")
    theirs.close()
    search = flow_of(ours, "take_over")
    until(ours.client, search, "bloom/claims/claim")
    assert [] == ours.take_over()
    search.close()
    assert ["the work"] == ours.take_over()


def test_work_is_found_though_the_server_has_lost_all_sessions(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """As where keys are evicted."""
    assert [] == ours.take_over()
    theirs.claim("a", note="the work")
    sessions, claims = f"{{{ours.name}}}:sessions", f"{{{ours.name}}}:claims"
    client.delete(sessions)
    theirs.abandon_many(["a"])
    left = client.pttl(claims)
    assert 0 < client.pttl(sessions) <= left + 1
    assert ["the work"] == ours.take_over()


def test_a_heartbeat_brings_a_session_back_that_the_server_has_lost(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """As where keys are evicted: otherwise its claims would be free while it works."""
    assert NEW is ours.claim("a")
    client.delete(f"{{{ours.name}}}:sessions")
    ours._send_heartbeat()
    assert BUSY is theirs.claim("a")


def test_an_old_lost_claim_is_released_though_the_server_has_forgotten_its_answer(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """The client was cut off for hours, and its lane was swept."""
    ours.add("before")
    lose(client, flow_of(ours, "claim", "a"))
    [(_, batch)] = ours._claims.session.lost
    batch.unanswered_since -= LANE_TTL_MS
    client.hdel(f"{{{ours.name}}}:state", batch.lane.field)
    ours._send_heartbeat()
    assert NEW is theirs.claim("a")


def test_items_that_an_object_without_claims_assumes_new_are_not_claimed(ours: TimeBloom) -> None:
    ours.assume_new(["a"])
    assert NEW is ours.claim("a")


def test_a_session_ends_though_a_repeated_commit_is_refused(
    url: str, name: str, theirs: TimeBloom
) -> None:
    with TimeBloom.from_url(url, f"{name}-full", capacity=1, grow=False) as seen:
        other = TimeBloom(theirs.client, seen.name, capacity=1, grow=False)
        assert [NEW, NEW] == seen.claim_many(["mine", "done"])
        failed = flow_of(seen, "commit", "done")
        next(failed)
        failed.close()
        seen.add("fills the slice")
        with pytest.raises(FilterFull):
            seen.end_session()
        assert {} == other.other_sessions()
        assert NEW is other.claim("mine")
        other.close()


def test_work_that_comes_back_from_another_session_is_found(clockwork: Any, open_one: Any) -> None:
    """Its first owner was silent; another session took it over and died; the owner has noticed neither."""
    ours, theirs = open_one(session_ttl=A_DAY), open_one()
    ours._keep_session = lambda: None  # no heartbeat
    assert NEW is ours.claim("a", note="the work")
    clockwork.set("2019-06-05 12:00:00")
    assert ["the work"] == theirs.take_over()
    theirs.end_session()
    clockwork.set("2019-06-05 12:00:01")
    assert [] == ours.take_over()
    ours.release("a")
    assert ["the work"] == ours.take_over()


def test_searches_with_different_prefixes_do_not_hinder_each_other(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """Each of three threads searches for itself."""
    notes = [f"{kind} {i}" for i in range(500) for kind in "ab"]
    theirs.claim_many(notes, notes=notes)
    theirs.close()
    searches = [flow_of(ours, "take_over", 1000, prefix) for prefix in "abc"]
    taken, replies = list[list[str]](), dict[Any, Any]()
    for _ in range(1000):
        for search in [*searches]:
            try:
                replies[search] = replies_to(ours.client, search.send(replies.get(search)))
            except StopIteration as end:
                taken.append(end.value)
                searches.remove(search)
    assert [] == searches
    assert [[], notes[::2], notes[1::2]] == sorted(sorted(each, key=notes.index) for each in taken)


def test_only_claims_of_dead_sessions_are_removed(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """An item that was seen when its claim was looked at may be claimed by a living session by now."""
    bury = theirs._claims.release_dead([digest(b"a")])
    calls = next(bury)
    assert NEW is ours.claim("a")
    assert [[0, b"0"]] == replies_to(client, calls)
    ours.abandon_many(["a"])  # without a note: released
    assert NEW is ours.claim("a", note="the work")
    ours.close()
    assert [[0, b"1"]] == replies_to(client, calls)


def test_a_claim_that_a_heartbeat_has_looked_up_is_not_executed_late(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    ours.add("b")
    claim = flow_of(ours, "claim", "a")
    late_claim = next(claim)
    claim.close()
    ours._send_heartbeat()
    assert [[0, b""]] == replies_to(client, late_claim)
    assert NEW is theirs.claim("a")


@pytest.mark.parametrize("leaves_work", [False, True])
def test_a_late_heartbeat_does_not_bring_an_ended_session_back(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, *, leaves_work: bool
) -> None:
    """Others would wait for it, and its work would be busy, for a minute."""
    ours.claim_many(["a", "b"], notes=["the work", ""])
    ours.commit("b")
    if not leaves_work:
        ours.commit("a")
    late_heartbeat = next(ours._claims.heartbeat())
    ours.end_session()
    assert 0 == replies_to(client, late_heartbeat)[0][0]
    assert {} == theirs.other_sessions()
    assert ["the work"] * leaves_work == theirs.take_over()


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("ends", ["end_session", "pause_session", "close"])
def test_a_heartbeat_in_flight_does_not_bring_back_a_session_that_ends_meanwhile(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, ends: str, *, is_first: bool
) -> None:
    """It is executed after the call that ends the session (dramatiq#199), and may be the first one after a lost claim."""
    ours.add("b")
    if is_first:
        lose(client, flow_of(ours, "claim", "a"))
    else:
        assert NEW is ours.claim("a")
        ours.commit("a")
    late_heartbeat = next(ours._claims.heartbeat())
    if is_first:
        ours._send_heartbeat()  # the claim is released: a session with claims is not paused
    getattr(ours, ends)()
    assert {} == theirs.other_sessions()
    replies_to(client, late_heartbeat)
    assert {} == theirs.other_sessions()


def test_a_late_pause_ends_no_claim(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    ours.claim("a")
    ours.commit("a")
    pause = flow_of(ours, "pause_session")
    late_pause = next(pause)
    with pytest.raises(redis.ConnectionError):
        pause.throw(redis.ConnectionError())
    assert NEW is ours.claim("b")
    assert 0 == replies_to(client, late_pause)[0][0]
    assert BUSY is theirs.claim("b")


def test_a_session_that_ends_without_claims_leaves_nothing(
    ours: TimeBloom, client: redis.Redis, name: str
) -> None:
    ours.claim("a")
    assert [ours.session] == client.hkeys(f"{{{name}}}:sessions")
    ours.commit("a")
    ours.close()
    assert not client.exists(f"{{{name}}}:sessions")


def test_a_repeated_item_keeps_its_first_note(ours: TimeBloom, theirs: TimeBloom) -> None:
    assert [NEW, BUSY] == ours.claim_many(["a", "a"], notes=["first", "second"])
    ours.close()
    assert ["first"] == theirs.take_over()


def test_work_is_taken_over_after_a_reconfigure_to_fewer_slices(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, slices=7) as dead:
        assert NEW is dead.claim("a", note="the work")
    TimeBloom.from_url(url, name, slices=3).reconfigure()
    with TimeBloom.from_url(url, name, slices=3) as ours:
        assert ["the work"] == ours.take_over()
        assert BUSY is ours.claim("a")


async def test_claims_that_are_abandoned_during_a_search_are_found(make: Any) -> None:
    """The search began before; who has died since then is not forgotten at its end."""
    first, second, ours = make(capacity=5000), make(capacity=5000), make(capacity=5000)
    await second.add("the filter's parameters")
    await first.claim_many([f"a {i}" for i in range(1200)], notes=[f"a {i}" for i in range(1200)])
    await second.claim_many([f"b {i}" for i in range(100)], notes=[f"b {i}" for i in range(100)])
    await first.abandon_many([f"a {i}" for i in range(1200)])
    taken = await ours.take_over(700)
    await second.abandon_many([f"b {i}" for i in range(100)])
    while some := await ours.take_over(1000):
        taken += some
    assert 1300 == len(set(taken)) == len(taken)


@pytest.mark.parametrize("found_before", [False, True])
def test_fewer_than_the_limit_means_that_nothing_is_left(
    ours: TimeBloom, theirs: TimeBloom, *, found_before: bool
) -> None:
    """opik#8137: however many claims of living sessions are between, and wherever the search before has stopped."""
    left = {f"work {i}" for i in range(3)}
    theirs.claim_many([*left], notes=[*left])
    ours.claim_many(map(str, range(40_000)))
    if found_before:
        before = [f"before {i}" for i in range(200)]
        with TimeBloom(ours.client, ours.name, capacity=1000) as dead:
            dead.claim_many(before, notes=before)
        taken = ours.take_over(199)
        assert 199 == len(taken)
        left |= {*before} - {*taken}
    theirs.close()
    assert sorted(left) == sorted(ours.take_over())


def test_work_whose_take_over_got_no_answer_is_taken_over_by_the_next(
    ours: TimeBloom, theirs: TimeBloom
) -> None:
    """By then, the session that has searched holds the claim. It releases it first."""
    assert NEW is theirs.claim("a", note="the work")
    theirs.close()
    search = flow_of(ours, "take_over")
    calls = until(ours.client, search, "bloom/claims/claim")
    replies_to(ours.client, calls)
    with pytest.raises(redis.ConnectionError):
        search.throw(redis.ConnectionError())
    assert ["the work"] == ours.take_over()


def test_closing_does_not_wait_for_a_server_that_is_gone(name: str) -> None:
    with servers.local(needed()) as client:
        port = client.connection_pool.connection_kwargs["port"]
        seen = TimeBloom.from_url(f"redis://127.0.0.1:{port}", name, retry_for=3600)
        seen.claim("a")
    seen.close()  # pytest's time-out would end it


async def test_heartbeats_go_on_after_an_outage(make: Any, url: str) -> None:
    """An error of a heartbeat does not end the thread or task that sends them (resque#1883)."""
    is_away, lost, received = False, 0, 0

    def choose(_: int) -> Fault | None:
        nonlocal lost, received
        lost, received = lost + is_away, received + (not is_away)
        return Fault.CUT_REQUEST if is_away else None

    with Proxy(url, choose) as proxy:
        ours = make(url=proxy.url, session_ttl=1.0, retry_for=0.0)
        assert NEW is await ours.claim("a")
        async with asyncio.timeout(60):
            is_away = True
            while lost < 3:  # noqa: ASYNC110 - the proxy's thread counts
                await asyncio.sleep(0.01)
            is_away, received = False, 0
            while not received:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await ours.aclose()


def test_threads_that_make_their_first_claims_at_once_start_one_heartbeat(
    url: str, name: str
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(8) as threads:
            for turn in range(20):
                with TimeBloom.from_url(url, f"{name}:{turn}") as seen:
                    assert 1 == [*threads.map(seen.claim, ["a"] * 8)].count(NEW)
                    names = [thread.name for thread in threading.enumerate()]
                    assert 1 == sum(thread.endswith("(run_in_thread)") for thread in names)
                    heartbeat = seen._heartbeat
                heartbeat.join()
    finally:
        sys.setswitchinterval(interval)


def test_a_claim_that_the_caller_assumed_new_stays_claimed(
    clockwork: Clockwork, open_one: Any
) -> None:
    """The claim reached the server, the reply did not, and the caller begins the work: no other process gets it."""
    ours, theirs = open_one(session_ttl=2), open_one()
    ours.add("before")
    lose(ours.client, flow_of(ours, "claim", "a", None, "the work"))
    ours.assume_new(["a"])
    for _ in range(5):
        clockwork.go_on(1)
        ours._send_heartbeat()
        assert BUSY is theirs.claim("a")
        assert [] == theirs.take_over()


def test_a_refused_commit_does_not_end_the_session(
    url: str, name: str, client: redis.Redis
) -> None:
    """A commit has failed; made up for, it finds the slice full."""
    with TimeBloom.from_url(url, name, capacity=1, grow=False) as seen:
        assert [NEW, NEW] == seen.claim_many(["mine", "done"])
        failed = flow_of(seen, "commit", "done")
        next(failed)
        failed.close()
        seen.add("fills the slice")
        until = client.hget(f"{{{name}}}:sessions", seen.session)
        while client.hget(f"{{{name}}}:sessions", seen.session) == until:
            with suppress(FilterFull):
                seen._send_heartbeat()


#: What is no claim, and what is no session.
DAMAGES: dict[str, list[str | bytes]] = {
    "claims": ["", "x", "0" * 27, "g" * 28, "0" * 16 + "zzzzzzzz" + "0007", b"\xff" * 40],
    "sessions": ["", "x", "-1", "1e300", "nan", "9" * 15, "9" * 400, "1", "1:2:3", b"\xff\x00"],
}


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, some in DAMAGES.items() for v in some])
def test_damaged_entries_are_dropped_and_other_claims_are_taken_over(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, kind: str, value: Any
) -> None:
    claims, sessions = (f"{{{ours.name}}}:{each}" for each in DAMAGES)
    assert NEW is theirs.claim("a", note="the work")
    client.hset(f"{{{ours.name}}}:{kind}", "0" * 16, value)
    assert [theirs.session] == [*ours.other_sessions()]
    theirs.close()
    assert ["the work"] == ours.take_over()
    while client.hkeys(sessions) != [
        ours.session
    ]:  # a session goes once it has been dead for a millisecond
        assert [] == ours.take_over()
    assert 1 == client.hlen(claims)
