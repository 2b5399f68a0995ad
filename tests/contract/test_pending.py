"""Pending answers: for how long they are kept, and how many, in the stores on Redis and in what a client keeps of them.

(That each is given once, whatever is lost, late or cleared: ``tests/simulation``.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.engine.tokens import MAX_RETRY_FOR
from tests.helpers.contents import snapshot
from tests.helpers.flows import flow_of, keys_of, lose, replies_to, sent
from tests.helpers.stores import BLOOM, EXACT, STORES, Store

both = pytest.mark.parametrize("store", [TimeBloom, ExactFilter])


@pytest.fixture
def wait(clockwork: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Moves the clocks of client and server on."""
    monotonic, passed = time.monotonic_ns, [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic() + passed[0] * 1_000_000_000)

    def wait(seconds: int) -> None:
        passed[0] += seconds
        clockwork.go_on(seconds)

    return wait


@both
@pytest.mark.parametrize("was_executed", [False, True])
def test_a_forgotten_call_is_not_executed(
    store: Any,
    clockwork: Any,
    wait: Any,
    name: str,
    *,
    was_executed: bool,
) -> None:
    """After two hours; by a call for other items, long after its caller has given up: the items would be seen, and nobody have them."""
    url, own = clockwork.server.url, {"ttl": 86_400} if store is ExactFilter else {}
    with store.from_url(url, name, **own) as seen, store.from_url(url, name, **own) as other:
        seen.add("before")
        lose(seen.client, flow_of(seen, "add", "within the hour"))
        wait(50 * 60)
        assert seen.add("within the hour")
        lost = flow_of(seen, "add", "x")
        if was_executed:
            lose(seen.client, lost)
        else:
            next(lost)
            lost.close()
        wait(3 * 3600)
        assert [] == seen._dispatcher.pending_answers.lost_in({0})
        assert seen.add("another")
        assert was_executed == other.contains("x")
        pending = seen._dispatcher.pending_answers
        assert not pending.lost
        assert not pending.new
        assert [not was_executed, False] == [other.add("x"), seen.add("x")]


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("again", ["resent", "asked for"])
def test_retries_of_the_longest_time_get_the_first_answer(
    store: Store, clockwork: Any, wait: Any, name: str, *, again: str
) -> None:
    """The call itself is retried for an hour; or it is asked for an hour later, and this look-up is retried for another one.
    Meanwhile many clients begin lanes."""
    longest, url = int(MAX_RETRY_FOR), clockwork.server.url
    own = {"ttl": 86_400} if store is EXACT else {}
    with store.open(url, name, retry_for=longest, **own) as seen:
        seen.add("before")
        calls = next(flow_of(seen, "add", "a"))
        assert (0, b"1") == (*replies_to(clockwork.client, calls)[0][:2],)
        wait(longest + 120)
        if again == "asked for":
            wait(longest - 240)
            assert seen._dispatcher.pending_answers.lost_in({0})
            wait(longest + 120)
        for other in range(100):
            store.of_client(clockwork.client, name, **own).add(f"item {other}")
        assert (0, b"1") == (*replies_to(clockwork.client, calls)[0][:2],)


@both
def test_lost_answers_are_fetched_by_the_next_call(store: Any, url: str, name: str) -> None:
    """So there are no more than calls at once."""
    with store.from_url(url, name) as seen:
        seen.add("before")
        flows = [flow_of(seen, "add", str(i)) for i in range(30)]
        calls = [next(flow) for flow in flows]
        for flow, call in zip(flows, calls, strict=True):
            replies_to(seen.client, call)
            flow.close()
        assert 30 == len(seen._dispatcher.pending_answers.lost)
        assert seen.add("other")
        assert 0 == len(seen._dispatcher.pending_answers.lost)
        assert [True] * 30 == [seen.add(str(i)) for i in range(30)]
        assert not any(seen.add_many(map(str, range(30))))
        pending = seen._dispatcher.pending_answers
        assert not pending.lost
        assert not pending.new


@pytest.mark.parametrize(
    ("store", "short"),
    [(TimeBloom, {"granularity": "10s", "slices": 2}), (ExactFilter, {"ttl": 20})],
)
@pytest.mark.parametrize("fetched", [False, True])
def test_a_repeat_after_its_window_is_a_new_call(
    store: Any, short: Any, clockwork: Any, wait: Any, name: str, *, fetched: bool
) -> None:
    """The lost answer has left with the window, so the item is new to the first who asks in the next one."""
    url = clockwork.server.url
    with store.from_url(url, name, **short) as seen, store.from_url(url, name, **short) as other:
        seen.add("before")
        lose(seen.client, flow_of(seen, "add_many", ["a", "b", "c"], None))
        if fetched:
            assert seen.add("c")
        # What is lost, the server has to forget; what was fetched, the client.
        (wait if fetched else clockwork.go_on)(30)
        assert [True, False, True] == [other.add("a"), seen.add("a"), seen.add("b")]
        assert [False, False] == seen.add_many(["a", "b"])


def test_an_answer_is_kept_for_four_hours(clockwork: Any, name: str) -> None:
    """Also where the clock is set back over a minute's beginning."""
    server = clockwork.client
    with TimeBloom.from_url(clockwork.server.url, name, slices=1, capacity=10) as seen:
        clockwork.set("2019-06-03 12:00:10")
        seen.add("a")
        [lane] = lanes_of(server, name)
        for clock in ("11:59:50", "16:00:30", "16:02:00"):
            clockwork.set(f"2019-06-03 {clock}")
            stays = clock < "16:02"
            for other in range(20 if stays else 1000):
                # Each new lane looks at a few others, by chance, and removes those that are idle.
                TimeBloom(server, name, slices=1, capacity=10).add(f"item {other} of {clock}")
                if lane not in lanes_of(server, name):
                    break
            assert stays == (lane in lanes_of(server, name))
        clockwork.set("2019-06-04 00:00:01")
        assert not server.keys("*")


def lanes_of(server: redis.Redis, name: str) -> list[str]:
    """The lanes in a filter's state."""
    return [field for field in server.hkeys(f"{{{name}}}:state") if field.startswith("L")]


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_stray_copy_of_an_earlier_call_changes_nothing(
    store: Store, client: redis.Redis, url: str, name: str
) -> None:
    """It comes late, after another call of its lane. The last one gets its first answer."""
    verbs = {"a": "add", "b": "add"} if store is BLOOM else {"a": "add", "1": "discard", "b": "add"}
    with store.open(url, name) as seen:
        seen.add_many(["1", "2"])
        calls = [sent(client, flow_of(seen, verb, item))[-1] for item, verb in verbs.items()]
        if store is BLOOM:
            lanes = [{call.command[3 + len(keys_of(call))].split()[1]} for call in calls]
        else:
            lanes = [{key for key in keys_of(call) if ":lane:" in key} for call in calls]
        assert set.intersection(*lanes)
        before = snapshot(client, name)
        *replies, [status, answers, *_] = replies_to(client, calls)
        assert {3} == {status for status, *_ in replies}
        assert (0, b"1") == (status, answers)
        assert before == snapshot(client, name)


@both
def test_a_copy_that_arrives_after_a_clear_changes_nothing(
    client: redis.Redis, name: str, store: Any
) -> None:
    """The filter is in use again by then."""
    ours, theirs = (store(client, name) for _ in range(2))
    theirs.add("the filter's parameters")
    calls = sent(client, flow_of(ours, "add", "a"))[-1:]
    theirs.clear()
    theirs.add_many(f"item {i}" for i in range(30))
    assert 0 not in [status for status, *_ in replies_to(client, calls)]
    assert theirs.add("a")


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.check)])
def test_the_lanes_of_clients_that_come_and_go_stay_few(
    clockwork: Any, name: str, times: int
) -> None:
    """Of a hundred in four hours, those of the last four are left, and at most half as many idle ones."""
    for turn in range(times):
        clockwork.go_on(242 * 60)
        for number in range(100):
            TimeBloom(clockwork.client, name, capacity=20_000).add(f"{turn} {number}")
        # (An item that is wrongly called seen leaves none.)
        assert 90 < len(lanes_of(clockwork.client, name)) <= 150
