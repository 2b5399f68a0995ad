"""A worker that has lost its claim learns of it when it commits: it was silent for so long that another one has taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tbloom import AsyncTimeBloom, Claim, TimeBloom
from tests.helpers.clock import Clockwork
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
LIFE = 1.0
ITEMS = ["a", "b", "c"]


@pytest.fixture
def silent(
    clockwork: Clockwork, name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TimeBloom]]:
    """Makes clients that send no heartbeats, and so count as dead after a second."""
    monkeypatch.setattr(TimeBloom, "_keep_session", lambda _: None)
    monkeypatch.setattr(AsyncTimeBloom, "_keep_session", lambda _: None)
    with ExitStack() as stack:

        def silent(url: str = clockwork.server.url, **how: Any) -> TimeBloom:
            how = {"capacity": 1000, "session_ttl": LIFE, **how}
            return stack.enter_context(TimeBloom.from_url(url, name, **how))

        yield silent


def warnings(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The numbers of items that the warnings so far have named."""
    found = [record.args for record in caplog.records if "taken over" in record.msg]
    caplog.clear()
    return [args[1] for args in found]  # type: ignore[index, misc]


@pytest.mark.parametrize("driver", ["sync", "async"])
@pytest.mark.parametrize("then", ["works", "has committed"])
@pytest.mark.parametrize("shards", [1, 3])
async def test_a_commit_says_which_claims_another_session_has_taken_over(
    silent: Any,
    clockwork: Clockwork,
    name: str,
    caplog: Any,
    *,
    driver: str,
    then: str,
    shards: int,
) -> None:
    """bullmq#3183"""
    ours: Any = silent(shards=shards)
    if driver == "async":
        how = {"capacity": 1000, "session_ttl": LIFE, "shards": shards}
        ours = AsyncTimeBloom.from_url(clockwork.server.url, name, **how)  # type: ignore[arg-type]
    else:
        ours = awaited(ours)
    theirs = silent(shards=shards)
    assert [NEW] * 3 == await ours.claim_many(ITEMS)
    clockwork.set("2019-06-03 00:00:02")
    assert [NEW, NEW] == theirs.claim_many(["a", "b"])
    if then == "has committed":
        assert theirs.commit_many(["a", "b"]) == [True, True]
    assert [False, True] == await ours.commit_many(["a", "c"])
    assert [1] == warnings(caplog)
    assert await ours.commit("b") is False
    assert [1] == warnings(caplog)
    assert {SEEN} == {*silent(shards=shards).claim_many(ITEMS)}
    # What is committed is no claim any more, but a commit still says whether another session works on the item.
    works = then == "works"
    assert [not works, not works, True] == await ours.commit_many(ITEMS)
    assert [2] * works == warnings(caplog)
    if works:
        assert [True, True] == theirs.commit_many(["a", "b"])
    assert [True] * 3 == await ours.commit_many(ITEMS)
    assert [] == warnings(caplog)
    await ours.aclose()
    assert not clockwork.client.hlen(f"{{{name}}}:claims")


def test_a_claim_that_nobody_has_taken_over_is_not_lost(
    silent: Any, clockwork: Clockwork, caplog: Any
) -> None:
    """It has expired; others have deleted or released it; it was committed before."""
    ours, theirs = silent(), silent()
    assert [NEW] * 3 == ours.claim_many(ITEMS)
    clockwork.set("2019-06-03 00:00:02")
    assert ours.commit("a")
    theirs._claims.session.shards.add(0)
    theirs._send_heartbeat()
    assert 0 == clockwork.client.hlen(f"{{{ours.name}}}:claims")
    assert NEW is theirs.claim("c")
    theirs.release("c")
    assert [True, True] == ours.commit_many(["b", "c"])
    assert [True, True] == ours.commit_many(["a", "new"])
    assert [] == warnings(caplog)


@pytest.mark.parametrize("heartbeats", [0, 1, 2])
@pytest.mark.parametrize("executed", [False, True])
def test_a_commit_that_a_heartbeat_has_repeated_says_that_another_session_works(
    silent: Any, clockwork: Clockwork, *, heartbeats: int, executed: bool
) -> None:
    """The caller repeats it too, and gets the answer that the heartbeat got (bull#308)."""
    is_cut, kind = False, Fault.CUT_REPLY if executed else Fault.CUT_REQUEST
    with Proxy(clockwork.server.url, lambda _: kind if is_cut else None) as proxy:
        theirs, ours = silent(), silent(proxy.url, retry_for=0.0)
        assert ours.commit("the server knows the script from now on")
        assert NEW is ours.claim("a")
        clockwork.set("2019-06-03 00:00:02")
        assert NEW is theirs.claim("a")
        is_cut = True
        with pytest.raises(redis.ConnectionError):
            ours.commit("a")
        is_cut = False
        for _ in range(heartbeats):
            ours._send_heartbeat()
        assert ours.commit("a") is False
        assert theirs.commit("a")
        ours.close()


def test_a_session_that_comes_back_does_not_get_a_claim_again_that_another_one_has(
    silent: Any, clockwork: Clockwork
) -> None:
    """Neither its heartbeat nor its release changes the other session's claim (components#1030)."""
    ours, theirs, third = silent(), silent(), silent()
    assert NEW is ours.claim("a")
    clockwork.set("2019-06-03 00:00:02")
    assert NEW is theirs.claim("a")
    ours._send_heartbeat()
    assert BUSY is third.claim("a")
    ours.release("a")
    assert [BUSY, BUSY] == [third.claim("a"), ours.claim("a")]
    assert theirs.commit("a")


def test_a_claiming_block_logs_that_its_item_was_taken_over(
    silent: Any, clockwork: Clockwork, caplog: Any
) -> None:
    ours, theirs = silent(), silent()
    with ours.claiming("a"):
        clockwork.set("2019-06-03 00:00:02")
        assert NEW is theirs.claim("a")
    assert [1] == warnings(caplog)


@pytest.mark.parametrize("fault", [Fault.CUT_REPLY, Fault.LOSE])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("callers", [False, True], ids=["ours", "the caller's client"])
def test_a_commit_that_is_sent_again_gets_its_first_answer(
    silent: Any, clockwork: Clockwork, caplog: Any, fault: Any, *, lost: bool, callers: bool
) -> None:
    """Also if redis-py itself sends it again, of which tbloom does not know."""
    faults = list[Fault]()
    with Proxy(clockwork.server.url, lambda _: faults.pop() if faults else None) as proxy:
        theirs, ours = silent(), silent(proxy.url)
        if callers:
            client = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3))
            ours = TimeBloom(client, ours.name, capacity=1000, session_ttl=LIFE)
        assert ours.commit("the server knows the script from now on")
        assert [NEW] * 3 == ours.claim_many(ITEMS)
        if lost:
            clockwork.set("2019-06-03 00:00:02")
            assert [NEW] * 3 == theirs.claim_many(ITEMS)
        faults.append(fault)
        assert [not lost] * 3 == ours.commit_many(ITEMS)
        assert not faults
        assert [3] * lost == warnings(caplog)
        ours.close()


@pytest.mark.parametrize("verb", ["claim", "commit", "release", "leave_many"])
def test_an_interrupt_before_anything_is_sent_leaves_no_claim_behind(
    silent: Any, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """As Ctrl-C, or gevent's timeout, while the call waits for its turn. The next heartbeat does what the call could not."""
    theirs, ours = silent(), silent()
    assert theirs.commit("the parameters are stored")
    if verb != "claim":
        assert NEW is ours.claim("a")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ours, "_keep_session", interrupted)
        patched.setattr(type(ours._sender), "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(ours, verb)(["a"] if verb == "leave_many" else "a")
    ours._send_heartbeat()
    assert theirs.claim("a") is (SEEN if verb == "commit" else NEW)


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("by", ["heartbeat", "caller", "close"])
def test_a_repeated_commit_does_not_count_own_work_as_taken_over(
    silent: Any, clockwork: Clockwork, caplog: Any, by: str, *, executed: bool
) -> None:
    """Another session's work is found while it lasts."""
    is_cut, kind = False, Fault.CUT_REPLY if executed else Fault.CUT_REQUEST
    with Proxy(clockwork.server.url, lambda _: kind if is_cut else None) as proxy:
        theirs, ours = silent(), silent(proxy.url, retry_for=0.0)
        assert ours.commit("the server knows the script from now on")
        assert [NEW, NEW] == ours.claim_many(["a", "b"])
        is_cut = True
        with pytest.raises(redis.ConnectionError):
            ours.commit("a")
        with pytest.raises(redis.ConnectionError):
            ours.commit("b")
        is_cut = False
        assert [] == warnings(caplog)
        clockwork.set("2019-06-03 00:00:02")
        assert theirs.claim("b") is (SEEN if executed else NEW)
        if by == "caller":
            assert [True, executed] == ours.commit_many(["a", "b"])
        elif by == "heartbeat":
            ours._send_heartbeat()
        else:
            ours.close()
        assert [1] * (not executed) == warnings(caplog)
