"""A worker that has lost its claim learns of it when it commits: it was silent for so long that another one has taken over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import product
from typing import Any

import pytest
import redis

from tbloom import AsyncTimeBloom, Claim, Note, TimeBloom
from tbloom.claims.fleet import LIVING, Fleet
from tests.helpers.clock import Clockwork
from tests.helpers.flows import flow_of, replies_to, run
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
LIFE = 1.0
ITEMS = ["a", "b", "c"]


def living(seen: Any) -> set[str]:
    """The names of the living sessions of the queue "q"."""
    crawlers = Fleet(seen, "q").look().crawlers
    return {each.session for each in crawlers if each.state in LIVING}


def cases(*values: Iterable[Any], few: list[int]) -> list[Any]:
    """Each combination, of which `make test` has few, by their numbers."""
    combinations = enumerate(product(*values))
    return [pytest.param(*c, marks=() if n in few else pytest.mark.check) for n, c in combinations]


@pytest.fixture
def silent(
    clockwork: Clockwork, name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TimeBloom]]:
    """Makes clients that send no heartbeats, and so count as dead after a second."""
    monkeypatch.setattr(TimeBloom, "_keep_session", lambda _: None)
    monkeypatch.setattr(AsyncTimeBloom, "_keep_session", lambda _: None)
    with ExitStack() as stack:

        def silent(url: str = clockwork.server.url, driver: str = "", **how: Any) -> Any:
            how = {"capacity": 1000, "session_ttl": LIFE, **how}
            if driver == "async":
                return AsyncTimeBloom.from_url(url, name, **how)
            if driver:
                return awaited(TimeBloom.from_url(url, name, **how))
            return stack.enter_context(TimeBloom.from_url(url, name, **how))

        yield silent


def warnings(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The numbers of items that the warnings so far have named."""
    found = [record.args for record in caplog.records if "taken over" in record.msg]
    caplog.clear()
    return [args[1] for args in found]  # type: ignore[index, misc]


@pytest.mark.parametrize(
    ("then", "shards", "driver"),
    cases(("works", "has committed"), (1, 3), ("sync", "async"), few=[1, 6]),
)
async def test_a_commit_says_which_claims_others_have_taken_over(
    silent: Any,
    clockwork: Clockwork,
    name: str,
    caplog: Any,
    *,
    then: str,
    shards: int,
    driver: str,
) -> None:
    """bullmq#3183"""
    ours, theirs = silent(shards=shards, driver=driver), silent(shards=shards)
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


@pytest.mark.parametrize(
    ("by", "executed"), cases(("heartbeat", "caller", "close"), (False, True), few=[0, 2, 5])
)
def test_a_repeated_commit_is_not_taken_over_by_itself(
    silent: Any, clockwork: Clockwork, caplog: Any, *, by: str, executed: bool
) -> None:
    """Another session's work is found while it lasts (bull#308)."""
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


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Of each session that was lost so far: why, and how many claims it had."""
    found = [record.args for record in caplog.records if "in place of session" in record.msg]
    caplog.clear()
    return [("silent" if "silent" in args[4] else "empty", args[3]) for args in found]  # type: ignore[index, misc]


#: What a session does that was silent, and finds then that it is lost. All items are others'.
WAKES: dict[str, Callable[[Any], Any]] = {
    "heartbeat": lambda seen: seen._send_heartbeat(),
    "claim": lambda seen: seen.claim_many(["new", *ITEMS]),
    "take": lambda seen: seen.take(queue="q"),
}


@pytest.mark.parametrize(
    ("how", "shards", "driver"), cases(WAKES, (1, 3), ("sync", "async"), few=[1, 6, 9])
)
async def test_a_session_that_others_have_buried_is_lost(
    silent: Any, clockwork: Clockwork, caplog: Any, *, how: str, shards: int, driver: str
) -> None:
    """Its process was frozen. It learns of that before it claims anything, and goes on under another name, in its queue."""
    ours = silent(shards=shards, driver=driver)
    made = getattr(ours, "_seen", ours)
    theirs = silent(shards=shards, session_ttl=60.0)
    await ours.take(0, "q")
    notes = [Note(item, "q") for item in ITEMS]
    assert [NEW] * 3 == await ours.claim_many(ITEMS, notes=notes)
    before = made.session
    clockwork.set("2019-06-03 00:00:02")
    taken = [note.text for _ in range(3) for note in theirs.take(queue="q").notes]
    assert sorted(ITEMS) == sorted(taken)
    assert theirs.commit("c")
    woken = await WAKES[how](ours)
    if how == "claim":
        assert woken == [NEW, BUSY, BUSY, SEEN]
    assert made.session != before
    assert [("silent", 3)] == told(caplog)
    sessions = living(theirs)
    assert {made.session, theirs.session} == sessions
    assert [False] * 3 == await ours.commit_many(ITEMS)
    await ours._send_heartbeat()
    assert [] == told(caplog)
    await ours.aclose()


@pytest.mark.parametrize("how", WAKES)
def test_a_session_that_nobody_has_buried_comes_back(
    silent: Any, clockwork: Clockwork, caplog: Any, how: str
) -> None:
    """As after an outage, in which all were silent."""
    ours, theirs = silent(), silent()
    assert NEW is ours.claim("b", note=Note("b", "q"))
    before = ours.session
    clockwork.set("2019-06-03 00:00:02")
    WAKES[how](ours)
    assert [before, []] == [ours.session, told(caplog)]
    assert BUSY is theirs.claim("b")


@pytest.mark.parametrize("one_owner", [False, True])
def test_a_session_that_has_lost_one_claim_is_lost(
    silent: Any, clockwork: Clockwork, caplog: Any, *, one_owner: bool
) -> None:
    """A link has led to the item; or to its host, which has one owner at a time (components#1030)."""
    ours, theirs = silent(), silent()
    ours.take(0, "q")
    if one_owner:
        theirs.take(0, "q")
    first, second, other = (Note(i, "q", "host", one_owner=one_owner) for i in ("a", "b", "c"))
    assert [NEW, NEW] == ours.claim_many(["a", "b"], notes=[first, second])
    clockwork.set("2019-06-03 00:00:02")
    assert NEW is theirs.claim("c" if one_owner else "a", note=other)
    ours._send_heartbeat()
    assert [("silent", 2)] == told(caplog)
    assert BUSY is ours.claim("c" if one_owner else "a", note=first)


def test_a_claim_that_arrives_after_the_burial_is_refused(
    silent: Any, clockwork: Clockwork, caplog: Any
) -> None:
    """The client was suspended while its claim was under way. It claims under its next name."""
    ours, theirs = silent(), silent(session_ttl=60.0)
    assert NEW is ours.claim("a", note="a")
    claim, before = flow_of(ours, "claim", "b"), ours.session
    late = next(claim)
    clockwork.set("2019-06-03 00:00:02")
    assert ["a"] == [note.text for note in theirs.take().notes]
    with redis.Redis.from_url(clockwork.server.url) as client:
        replies = replies_to(client, late)
        assert [[10, b""]] == replies
        assert NEW is run(client, claim, replies)[0]
    assert before != ours.session
    assert [("silent", 1)] == told(caplog)
    assert ours.commit("b")


@pytest.mark.parametrize("how", WAKES)
def test_each_client_warns_of_an_emptied_server(
    silent: Any, clockwork: Clockwork, caplog: Any, how: str
) -> None:
    """Whichever comes first, and begins the filter anew. Also of one that has no claims: what was left is gone."""
    clients = [silent() for _ in range(3)]
    for n, each in enumerate(clients):
        each.take(0, "q")
        each.claim_many(ITEMS[:n])
        each.commit("a")
    before = [each.session for each in clients]
    clockwork.client.flushall()
    clockwork.go_on(0.1)
    for each in clients:
        WAKES[how](each)
        each._send_heartbeat()
    assert [("empty", 0), ("empty", 0), ("empty", 1)] == told(caplog)
    assert not {*before} & {each.session for each in clients}
    sessions = living(clients[0])
    assert {each.session for each in clients} == sessions


def test_what_other_shards_have_of_a_lost_session_is_left(
    silent: Any, clockwork: Clockwork, caplog: Any
) -> None:
    ours, theirs = silent(shards=3), silent(shards=3)
    items = [f"item {i}" for i in range(100)]
    assert [NEW] * 100 == ours.claim_many(items, notes=items)
    theirs.claim_many(f"their {i}" for i in range(100))  # each shard knows a session
    assert clockwork.client.hdel(ours.config.keys.sessions(0), ours.session)
    ours._send_heartbeat()
    assert [("silent", 100)] == told(caplog)
    taken = [note.text for _ in range(9) for note in theirs.take(100).notes]
    assert sorted(items) == sorted(taken)


def test_a_lost_session_without_claims_is_no_warning(
    silent: Any, clockwork: Clockwork, caplog: Any
) -> None:
    """It joins the sessions of its queue again, so that the others wait for it."""
    ours, theirs = silent(), silent(session_ttl=60.0)
    ours.take(0, "q")
    clockwork.set("2019-06-03 00:00:02")
    theirs.take(0, "q")  # buries
    assert {theirs.session} == living(theirs)
    ours._send_heartbeat()
    assert [] == told(caplog)
    sessions = living(theirs)
    assert {ours.session, theirs.session} == sessions


@pytest.mark.parametrize("clock", ["time", "monotonic"])
def test_a_process_notices_by_either_clock_that_it_was_silent(
    silent: Any, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """One stands still while the machine is suspended. Without a claim, nothing is lost; a heartbeat ends the doubt."""
    ours, later = silent(), getattr(time, clock)() + 1.5
    monkeypatch.setattr(f"time.{clock}", lambda: later)
    assert not ours._claims.is_silent
    monkeypatch.undo()
    ours = silent()
    assert NEW is ours.claim("a")
    assert not ours._claims.is_silent
    later = getattr(time, clock)() + 1.5
    monkeypatch.setattr(f"time.{clock}", lambda: later)
    assert ours._claims.is_silent
    ours._send_heartbeat()
    assert not ours._claims.is_silent
