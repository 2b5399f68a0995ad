"""What was sent before a ``clear()`` and arrives after it, or is called again, belongs to the cleared filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tests.helpers.flows import flow_of, replies_to, sent

some_shards = pytest.mark.parametrize("shards", [1, 3])


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
