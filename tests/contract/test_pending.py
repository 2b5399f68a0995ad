"""Pending answers: for how long they are kept, and how many, in the stores on Redis and in what a client keeps of them.

(That each is given once, whatever is lost, late or cleared: ``tests/simulation``.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from tbloom import Claim, ExactFilter, TBloomError, TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import digest
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine import pending
from tbloom.engine.dispatcher import Dispatcher
from tbloom.engine.pending import Batch, PendingAnswers, now_ms
from tbloom.engine.retries import Retries
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS, LanePool
from tests.helpers.contents import snapshot
from tests.helpers.flows import flow_of, keys_of, lose, replies_to, sent
from tests.helpers.making import in_child, needs_fork
from tests.helpers.stores import BLOOM, STORES, Store

both = pytest.mark.parametrize("store", [TimeBloom, ExactFilter])


@pytest.fixture
def wait(clockwork: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Moves the clocks of client and server on."""
    monotonic, passed = time.monotonic_ns, [timedelta()]

    def wait(**some: int) -> None:
        passed[0] += timedelta(**some)
        clockwork.set(datetime(2019, 6, 3, tzinfo=timezone.utc) + passed[0])

    monkeypatch.setattr(
        time, "monotonic_ns", lambda: monotonic() + passed[0] // timedelta(microseconds=1) * 1000
    )
    return wait


@both
@pytest.mark.parametrize("was_executed", [False, True])
def test_a_lost_call_is_not_executed_once_its_answer_is_forgotten(
    store: Any,
    clockwork: Any,
    wait: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    was_executed: bool,
) -> None:
    """By a call for other items, long after its caller has given up: the items would be seen, and nobody have them."""
    monkeypatch.setattr(pending, "MAX_LOST", 0)
    url, own = clockwork.server.url, {"ttl": 86_400} if store is ExactFilter else {}
    with store.from_url(url, name, **own) as seen, store.from_url(url, name, **own) as other:
        seen.add("before")
        lost = flow_of(seen, "add", "x")
        if was_executed:
            lose(seen.client, lost)
        else:
            next(lost)
            lost.close()
        wait(hours=2)
        assert seen.add("another")
        assert was_executed == other.contains("x")
        assert not seen._dispatcher.pending_answers.exist
        assert [not was_executed, False] == [other.add("x"), seen.add("x")]


@both
def test_lost_answers_beyond_their_limit_are_fetched_by_the_next_call(
    store: Any, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So none is dropped, and there are no more than the limit and the calls under way."""
    monkeypatch.setattr(pending, "MAX_LOST", 10)
    with store.from_url(url, name) as seen:
        seen.add("before")
        for i in range(30):
            lose(seen.client, flow_of(seen, "add", str(i)))
        assert not seen.contains("11")
        assert 11 == len(seen._dispatcher.pending_answers._lost)
        assert seen.add("other")
        assert 10 == len(seen._dispatcher.pending_answers._lost)
        assert [True] * 30 == [seen.add(str(i)) for i in range(30)]
        assert not any(seen.add_many(map(str, range(30))))


@pytest.mark.parametrize(
    ("store", "short"),
    [(TimeBloom, {"granularity": "1s", "slices": 2}), (ExactFilter, {"ttl": 2})],
)
def test_a_repeat_after_its_window_is_answered_like_any_other_call(
    store: Any, short: Any, clockwork: Any, name: str
) -> None:
    """The lost answer has left with the window, so the item is new to the first who asks in the next one."""
    url = clockwork.server.url
    with store.from_url(url, name, **short) as seen, store.from_url(url, name, **short) as other:
        seen.add("before")
        lose(seen.client, flow_of(seen, "add_many", ["a", "b"], None))
        clockwork.set("2019-06-03 00:00:03")
        assert [True, False, True] == [other.add("a"), seen.add("a"), seen.add("b")]
        assert [False, False] == seen.add_many(["a", "b"])


def test_an_answer_is_kept_for_an_hour_or_until_its_slice_leaves(clockwork: Any, name: str) -> None:
    """Also where the clock is set back over a minute's beginning."""
    with (
        TimeBloom.from_url(clockwork.server.url, name, slices=1, capacity=10) as seen,
        redis.Redis.from_url(clockwork.server.url, decode_responses=True) as server,
    ):
        clockwork.set("2019-06-03 12:00:10")
        seen.add("a")
        [lane] = lanes_of(server, name)
        for clock in ("11:59:50", "13:00:30", "13:02:00"):
            clockwork.set(f"2019-06-03 {clock}")
            for other in range(20):  # each new lane looks for idle ones
                TimeBloom(server, name, slices=1, capacity=10).add(f"item {other} of {clock}")
            assert (clock < "13:02") == (lane in lanes_of(server, name))
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
            lanes = [{call.words[3 + len(keys_of(call))].split()[1]} for call in calls]
        else:
            lanes = [{key for key in keys_of(call) if ":lane:" in key} for call in calls]
        assert set.intersection(*lanes)
        before = snapshot(client, name)
        *replies, [status, answers, *_] = replies_to(client, calls)
        assert {3} == {status for status, *_ in replies}
        assert (0, b"1") == (status, answers)
        assert before == snapshot(client, name)


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("was_executed", [False, True])
def test_a_lost_call_is_not_executed_once_a_later_one_has_asked_for_its_answer(
    store: Store, client: redis.Redis, url: str, name: str, *, was_executed: bool
) -> None:
    """Its late copy changes nothing; what it was answered is given once, wherever its items are by then."""
    with store.open(url, name) as seen, store.open(url, name) as other:
        items = [f"lost {i}" for i in range(20)]
        seen.add("before")
        lost = flow_of(seen, "add_many", items)
        calls = next(lost)
        if was_executed:
            replies_to(client, calls)
        lost.close()
        other.add_many(map(str, range(1000)))  # buckets are split
        assert seen.add(items[0])
        replies_to(client, calls)
        assert was_executed == other.contains(items[1])
        assert all(seen.add_many(items[1:]))
        assert not any(seen.add_many(items) + other.add_many(items))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("was_seen", [False, True])
@pytest.mark.parametrize(
    ("store", "verb"),
    [*((TimeBloom, verb) for verb in ("add", "claim", "commit")), (ExactFilter, "add")],
)
def test_a_copy_that_arrives_after_a_clear_changes_nothing(
    client: redis.Redis, name: str, *, store: Any, verb: str, was_seen: bool, shards: int
) -> None:
    """The filter is in use again by then. A call that answered "seen" has left no answer on the server."""
    ours, theirs = (store(client, name, shards=shards) for _ in range(2))
    theirs.add("the filter's parameters")
    if was_seen:
        theirs.add("a")
    calls = sent(client, flow_of(ours, verb, "a"))[-1:]
    theirs.clear()
    theirs.add_many(f"item {i}" for i in range(30))
    assert 0 not in [status for status, *_ in replies_to(client, calls)]
    assert store is ExactFilter or Claim.NEW is theirs.claim("a")
    assert theirs.add("a")


def test_the_lanes_of_10_000_clients_that_come_and_go_stay_few(clockwork: Any, name: str) -> None:
    """Of a hundred an hour, those of the last hour are left, and at most half as many idle ones."""
    config, began = (
        configure(name, slices=7, capacity=20_000),
        datetime(2019, 6, 3, tzinfo=timezone.utc),
    )
    state = config.keys.state(0)
    with redis.Redis.from_url(clockwork.server.url, decode_responses=True) as server:
        TimeBloom(server, name, slices=7, capacity=20_000).add("first")
        for hour in range(100):
            now = began + hour * timedelta(minutes=62)
            clockwork.set(f"{now:%Y-%m-%d %H:%M:%S}")
            layout = Layout(config, server.hget(state, "layout") or "")
            calls = SliceCalls(config, round(now.timestamp() * 1000), {0: layout})
            with server.pipeline(transaction=False) as pipeline:
                for number in range(100):
                    item = Batch([digest(f"{hour} {number}")], lane=LanePool().take())
                    pipeline.execute_command(*calls.add(config.slices, item).words)
                assert {0} == {status for status, _ in pipeline.execute()}
            lanes = sum(field.startswith("L") for field in server.hkeys(state))
            assert 90 < lanes <= 150  # (An item that is wrongly called seen leaves none.)


def digests(number: int, first: int = 0) -> list[bytes]:
    return [b"%016d" % i for i in range(first, first + number)]


def keep_new(
    answers: PendingAnswers, new: list[bytes], lasts: int = LANE_TTL_MS, **where: Any
) -> None:
    """Keeps new items whose answers did not reach their caller."""
    answers.keep(Batch(new, answers="1" * len(new), **where), lasts)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The monotonic clock (ns), which the test sets."""
    clock = [10**18]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    return clock


@pytest.mark.parametrize("lasts", [10**9, 2000, 1])
def test_what_is_kept_is_kept_for_an_hour_and_no_longer_than_it_is_remembered(
    clock: list[int], lasts: int
) -> None:
    answers, [new, lost] = PendingAnswers(), digests(2)
    keep_new(answers, [new], lasts)
    answers.keep(Batch([lost], lane=LanePool().take(), sent=now_ms()), lasts)
    clock[0] += (min(lasts, LANE_TTL_MS) - 1) * 1_000_000
    assert new in answers
    assert lost in answers
    clock[0] += 1_000_000
    assert new not in answers
    assert lost not in answers
    assert [] == answers.lost([lost])
    assert {} == answers.take_new([new])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(pending, "MAX_LOST", 100)
    monkeypatch.setattr(pending, "MAX_NEW", 100)
    return 100


def test_too_many_new_items_are_asked_for_before_others(few: int) -> None:
    answers = PendingAnswers()
    keep_new(answers, digests(few - 1))
    answers.check_room("name", digests(1, 1000))
    keep_new(answers, digests(1, few))
    with pytest.raises(TBloomError, match="'name': 100 new items"):
        answers.check_room("name", digests(1, 1000))
    answers.check_room("name", [*digests(1, 1000), *digests(1)])
    answers.forget(digests(1))
    answers.check_room("name", digests(1, 1000))


def test_new_items_of_another_generation_are_dropped_also_if_they_are_kept_later() -> None:
    """Than their shard's present one. A generation has no order: a lower one may be later."""
    for present, other in (("1", "2"), ("2", "1")):
        answers = PendingAnswers()
        for first in (0, 4):
            keep_new(answers, digests(2, first), shard=0, generation=other)
            keep_new(answers, digests(2, first + 2), shard=1, generation=other)
            answers.note_generation(0, present)
        keep_new(answers, digests(1, 8), shard=0, generation=present)
        assert digests(1)[0] not in answers
        assert not answers.knows(digests(1))
        assert [*digests(2, 2), *digests(3, 6)] == [*answers.take_new(digests(10))]


def test_a_call_that_is_lost_once_its_text_was_sent_may_be_executed_late() -> None:
    """The server did not know the script; a claim has to know of such a copy."""
    call = Script("bloom/add").call(["a key"])
    retries = Retries([call], lambda: 1.0, lambda _: "")
    for error in (redis.exceptions.NoScriptError(), redis.ConnectionError()):
        assert not call.is_resent
        retries.next_calls()
        retries.take([error])
    assert call.is_resent


class Quiet(Dispatcher):
    """A dispatcher that sends nothing."""

    _prepare = _accept = _rest_of = last_call = None  # type: ignore[assignment]


@needs_fork
def test_a_child_leaves_pending_answers_to_its_parent() -> None:
    dispatcher = Quiet("a")
    digest = b"a digest's bytes"
    keep_new(dispatcher.pending_answers, [digest])
    assert in_child(lambda: digest in dispatcher.pending_answers) is False
    assert [digest] == [*dispatcher.pending_answers.take_new([digest])]
