"""What was sent before a ``clear()`` and arrives after it, or is called again, belongs to the cleared filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tbloom import Claim, DistinctCounter, ExactFilter, TimeBloom
from tbloom.engine import exchange as engine_exchange
from tests.helpers.flows import flow_of, replies_to, run, sent
from tests.helpers.proxy import LossyProxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

some_shards = pytest.mark.parametrize("shards", [1, 3])
stores = pytest.mark.parametrize("store", [TimeBloom, ExactFilter, DistinctCounter])


@pytest.fixture
def open_one(url: str, name: str) -> Iterator[Callable[..., TimeBloom]]:
    """Opens one more client of the filter."""
    opened: list[TimeBloom] = []

    def open_one(**arguments: Any) -> TimeBloom:
        arguments = {"url": url, "capacity": 1000, **arguments}
        opened.append(TimeBloom.from_url(arguments.pop("url"), name, **arguments))
        return opened[-1]

    yield open_one
    for seen in opened:
        seen.close()


@some_shards
@pytest.mark.parametrize("was_seen", [False, True])
@pytest.mark.parametrize("verb", ["add", "claim", "commit"])
def test_a_copy_that_arrives_after_a_clear_changes_nothing(
    open_one: Any, client: redis.Redis, verb: str, was_seen: bool, shards: int
) -> None:
    """The filter is in use again by then. A call that answered "seen" has left no answer on the server."""
    ours, theirs = open_one(shards=shards), open_one(shards=shards)
    theirs.add("the filter's parameters")
    if was_seen:
        theirs.add("a")
    calls = sent(client, flow_of(ours, verb, "a"))[-1:]
    theirs.clear()
    theirs.add_many(f"item {i}" for i in range(30))
    assert 0 not in [status for status, *_ in replies_to(client, calls)]
    assert Claim.NEW is theirs.claim("a")
    assert theirs.add("a")


@some_shards
@pytest.mark.parametrize("verb", ["add", "contains", "claim"])
def test_an_answer_that_is_on_its_way_during_a_clear_is_not_cached(
    open_one: Any, client: redis.Redis, verb: str, shards: int
) -> None:
    """The object that clears is shared with the thread that asks."""
    ours, theirs = open_one(shards=shards, cache_size=100), open_one(shards=shards)
    ours.add_many(f"item {i}" for i in range(30))  # meets all shards
    theirs.add("a")
    flow = flow_of(ours, verb, "a")
    on_their_way = replies_to(client, next(flow))
    ours.clear()
    with pytest.raises(StopIteration) as answer:
        flow.send(on_their_way)
    assert answer.value.value in (False, True, Claim.SEEN)  # as it was
    assert not ours.contains("a")
    assert ours.add("a")


@pytest.mark.parametrize(
    ("store", "shards"),
    [
        (DISTINCT, {}),
        *((store, shards) for store in (BLOOM, EXACT) for shards in ({}, store.sharded)),
    ],
    ids=str,
)
@pytest.mark.parametrize("itself", [False, True])
def test_a_call_whose_answer_was_lost_is_made_anew_after_a_clear(
    url: str, name: str, store: Store, shards: dict[str, Any], itself: bool
) -> None:
    """The item is new to it, and seen from then on. ``itself``: the object that has made the call clears."""
    with (
        LossyProxy(url) as proxy,
        store.open(proxy.url, name, retry_for=0, **shards) as ours,
        store.open(url, name, **shards) as theirs,
    ):
        ours.add("before")
        proxy.lose(ours.add_many, ["a", "b"])
        (ours if itself else theirs).clear()
        assert theirs.add("b")
        assert [True, False] == ours.add_many(["a", "b"])
        assert [False, False] == theirs.add_many(["a", "b"])


@stores
def test_a_clear_while_a_lost_answer_is_fetched_leaves_the_item_to_the_call_that_asks(
    client: redis.Redis, url: str, name: str, store: Any
) -> None:
    """By another thread of the same object."""
    with store.from_url(url, name) as seen:
        seen.add("before")
        lost = flow_of(seen, "add_many", ["x", "y"])
        seen._send(next(lost))
        lost.close()
        fetch = flow_of(seen, "add_many", ["x"])
        calls = next(fetch)
        seen.clear()
        answers, _ = run(client, fetch, seen._send(calls))
        assert [True] == answers
        assert [True, False] == seen.contains_many(["x", "y"])
        assert [False, True] == seen.add_many(["x", "y"])


@stores
def test_answers_from_before_a_clear_are_not_kept_once_it_is_known(
    url: str, name: str, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one call for many items, which meets the clear in its middle, and then fails."""
    monkeypatch.setattr(engine_exchange, "CALLS_AT_ONCE", 1)
    with store.from_url(url, name) as ours, store.from_url(url, name) as theirs:
        ours.add("before")
        items = [str(i) for i in range(500)]
        fails = flow_of(ours, "add_many", items)
        calls = fails.send(ours._send(next(fails)))
        theirs.clear()
        assert all(theirs.add_many(items))
        for _ in range(3):  # learns of the clear
            calls = fails.send(ours._send(calls))
        fails.close()
        assert not any(ours.add_many(items))


def test_a_copy_that_arrives_in_an_empty_filter_puts_nothing_into_it(
    open_one: Any, client: redis.Redis, name: str
) -> None:
    """Not even parameters. A first call's copy, which knows of no clear, begins a filter without items."""
    ours, theirs = open_one(), open_one()
    first = sent(client, flow_of(ours, "add", "a"))[:1]
    theirs.add("the filter's parameters")
    calls = sent(client, flow_of(ours, "add", "a"))[-1:]
    theirs.clear()
    assert [5] == [status for status, *_ in replies_to(client, calls)]
    assert all(":lane:" in key for key in client.keys(f"*{name}*"))
    assert [5] == [status for status, *_ in replies_to(client, first)]
    assert 0 == theirs.info().items
    assert theirs.add("a")
