"""The sessions that hold claims: their numbers, lifetimes and heartbeats."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tbloom.claims.flows import bury
from tbloom.claims.notes import short
from tbloom.engine.tokens import LANE_TTL_MS
from tests.helpers.flows import flow_of, lose, replies_to, run, until
from tests.helpers.proxy import Fault, Proxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
A_DAY = 86_400.0


def take(seen: TimeBloom) -> list[str]:
    return [note.text for note in seen.take().notes]


def test_a_repeat_gets_a_lost_claim_and_no_other(ours: TimeBloom) -> None:
    """Nothing can come between, as it could if the lost claim were released first: it is looked up, and then replaced."""
    assert NEW is ours.claim("a")
    lose(ours.client, flow_of(ours, "claim", "b"))
    again = flow_of(ours, "claim_many", ["a", "b", "c"])
    assert ([BUSY, NEW, NEW], 2) == run(ours.client, again)


def test_work_is_left_for_an_hour_after_a_short_window(clockwork: Any, open_one: Any) -> None:
    """The window ends every second; 50 minutes after the session has ended, its work is taken over."""
    dead, ours = (open_one(granularity="1s", slices=1) for _ in range(2))
    assert NEW is dead.claim("a", note="the work")
    dead.close()
    clockwork.set("2019-06-03 00:50:00")
    assert ["the work"] == take(ours)


def test_work_that_another_session_has_committed_is_not_taken(
    clockwork: Any, open_one: Any
) -> None:
    """Two processes worked on it, because one was taken for dead. It comes back, and ends."""
    late, ours = open_one(session_ttl=A_DAY), open_one()
    late._keep_session = lambda: None  # no heartbeat
    assert NEW is late.claim("a", note="the work")
    clockwork.set("2019-06-05 12:00:00")
    assert ["the work"] == take(ours)
    ours.commit("a")
    clockwork.set("2019-06-06 12:00:00")
    late._send_heartbeat()
    late.close()
    assert [] == take(ours)
    assert 0 == ours.client.hlen(f"{{{ours.name}}}:claims")


def test_a_session_is_dead_once_its_time_is_up(clockwork: Any, open_one: Any) -> None:
    """Alive to the last second, dead from the next one on; a claim extends its session's life."""
    ours, theirs = (open_one(session_ttl=A_DAY) for _ in range(2))
    ours._keep_session = lambda: None  # no heartbeat
    assert NEW is ours.claim("a")
    clockwork.set("2019-06-03 18:00:00")
    assert NEW is ours.claim("b")
    clockwork.set("2019-06-04 17:59:59")
    assert [BUSY, BUSY] == theirs.claim_many(["a", "b"])
    clockwork.set("2019-06-04 18:00:00")
    assert [NEW, NEW] == theirs.claim_many(["a", "b"])


def test_a_session_that_comes_back_in_time_keeps_its_work(clockwork: Any, open_one: Any) -> None:
    """queue-jobs-worker#6: whether it is dead is looked at again in the call that leaves its work."""
    late, ours = open_one(session_ttl=A_DAY), open_one()
    late._keep_session = lambda: None  # no heartbeat but the test's
    assert NEW is late.claim("a", note="the work")
    clockwork.set("2019-06-05 12:00:00")
    search = flow_of(ours, "take")
    calls = until(ours.client, search, "claims/bury")
    late._send_heartbeat()
    assert [] == run(ours.client, search, replies_to(ours.client, calls))[0].notes
    assert BUSY is ours.claim("a")


@pytest.mark.parametrize("leaves", [False, True])
def test_work_is_found_though_the_server_has_lost_all_sessions(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, *, leaves: bool
) -> None:
    """As where keys are evicted."""
    assert [] == take(ours)
    theirs._keep_session = lambda: None  # type: ignore[method-assign]
    theirs.claim("a", note="the work")
    sessions, claims = f"{{{ours.name}}}:sessions", f"{{{ours.name}}}:claims"
    client.delete(sessions)
    if leaves:
        theirs.leave_many(["a"])
    with TimeBloom(client, ours.name, capacity=1000) as third:
        assert ["the work"] == take(third)
        assert 0 < client.pttl(sessions) <= client.pttl(claims) + 1000


def test_a_heartbeat_brings_an_evicted_session_back(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """As where keys are evicted: otherwise its claims would be free while it works."""
    assert NEW is ours.claim("a")
    client.delete(f"{{{ours.name}}}:sessions")
    ours._send_heartbeat()
    assert BUSY is theirs.claim("a")


def test_a_lost_claim_is_released_though_its_answer_is_forgotten(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis
) -> None:
    """The client was cut off for hours, and its lane was swept."""
    ours.add("before")
    lose(client, flow_of(ours, "claim", "a"))
    [(_, batch)] = ours._claims.session.unanswered
    batch.unanswered_since -= LANE_TTL_MS
    client.hdel(f"{{{ours.name}}}:state", batch.lane.field)
    ours._send_heartbeat()
    assert NEW is theirs.claim("a")


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
        assert [] == theirs.client.hkeys(f"{{{seen.name}}}:sessions")
        assert NEW is other.claim("mine")
        other.close()


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("ends", ["end_session", "close"])
def test_a_late_heartbeat_brings_no_ended_session_back(
    ours: TimeBloom, client: redis.Redis, ends: str, *, is_first: bool
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
        ours._send_heartbeat()  # the claim is released
    getattr(ours, ends)()
    sessions = f"{{{ours.name}}}:sessions"
    assert [] == client.hkeys(sessions)
    replies_to(client, late_heartbeat)
    assert [] == client.hkeys(sessions)


def test_a_repeated_item_keeps_its_first_note(ours: TimeBloom, theirs: TimeBloom) -> None:
    assert [NEW, BUSY] == ours.claim_many(["a", "a"], notes=["first", "second"])
    ours.close()
    assert ["first"] == take(theirs)


def test_closing_does_not_wait_for_a_server_that_is_gone(
    url: str, name: str, theirs: TimeBloom
) -> None:
    """It tries once to free what was claimed, though calls are tried for an hour."""
    is_away = False
    with Proxy(url, lambda _: Fault.CUT_REQUEST if is_away else None) as proxy:
        seen = TimeBloom.from_url(proxy.url, name, retry_for=3600, capacity=1000)
        assert NEW is seen.claim("a")
        is_away = True
        seen.close()
        assert {Fault.CUT_REQUEST: 1} == proxy.struck
    assert BUSY is theirs.claim("a")


async def test_heartbeats_go_on_after_an_outage(
    make: Any, url: str, client: redis.Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of a heartbeat does not end the thread or task that sends them (resque#1883). The log has the first one of each outage."""
    is_away, lost = False, 0

    def choose(_: int) -> Fault | None:
        nonlocal lost
        lost += is_away
        return Fault.CUT_REQUEST if is_away else None

    with Proxy(url, choose) as proxy:
        ours = make(url=proxy.url, session_ttl=1.0, retry_for=0.0)
        assert NEW is await ours.claim("a")
        async with asyncio.timeout(60):
            for _ in range(2):
                is_away, lost = True, 0
                while lost < 3:  # noqa: ASYNC110 - the proxy's thread counts
                    await asyncio.sleep(0.01)
                is_away, lives = False, client.hvals(f"{{{name}}}:sessions")
                while lives == client.hvals(f"{{{name}}}:sessions"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await ours.aclose()
    assert 2 == caplog.text.count("a heartbeat failed")


def test_threads_that_claim_at_once_start_one_heartbeat(url: str, name: str) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(8) as threads:
            for turn in range(20):
                with TimeBloom.from_url(url, f"{name}:{turn}") as seen:
                    assert 1 == [*threads.map(seen.claim, ["a"] * 8)].count(NEW)
                    names = [thread.name for thread in threading.enumerate()]
                    assert 1 == sum(thread == "tbloom-heartbeat" for thread in names)
                    heartbeat = seen._heartbeat
                heartbeat.join()
    finally:
        sys.setswitchinterval(interval)


#: What is no claim, what is no session, and what is no left item.
DAMAGES: dict[str, list[str | bytes]] = {
    "claims": ["", "x", "0" * 27, "g" * 28, "0" * 16 + "zzzzzzzz" + "0007", b"\xff" * 40],
    "sessions": ["", "x", "-1", "1e300", "nan", "9" * 15, "9" * 400, "1", "1 2 3", b"\xff\x00"],
    "left": ["", "x", short("", 8) + "0", short("", 8) + "0" * 40, short("", 8) + "2", b"\xff"],
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_entries_are_dropped_and_other_work_is_taken(
    ours: TimeBloom, theirs: TimeBloom, client: redis.Redis, kind: str
) -> None:
    claims, sessions, left = (f"{{{ours.name}}}:{each}" for each in DAMAGES)
    assert NEW is theirs.claim("a", note="the work")
    for number, value in enumerate(DAMAGES[kind]):
        if kind == "left":
            client.zadd(left, {value: 0})
            continue
        for field in (f"{number:016}", f"burial{number}", "burial", "w", f"w{short('', 8)}"):
            client.hset(f"{{{ours.name}}}:{kind}", field, value)
    assert ours.commit("names its queue")
    theirs.close()
    assert ["the work"] == take(ours)
    run(client, bury(ours.config, [0]))
    while [] != [*{*client.hkeys(sessions)} - {ours.session, "w", f"w{short('', 8)}"}]:
        # A session goes once it has been dead for a millisecond.
        run(client, bury(ours.config, [0]))
    assert 1 == client.hlen(claims)
    assert [] == take(ours)
