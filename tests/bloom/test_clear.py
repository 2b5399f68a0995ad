"""What was sent before a ``clear()`` and arrives after it, or is called again, belongs to the cleared filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from tbloom import Claim, ExactFilter, TimeBloom
from tbloom.engine.flow import ScriptCall
from tests.helpers.flows import replies_to
from tests.helpers.proxy import LossyProxy

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


def sent(client: redis.Redis, flow: Any) -> list[ScriptCall]:
    """Runs a flow; returns its last script calls."""
    calls = next(flow)
    with suppress(StopIteration):
        while True:
            last = calls
            calls = flow.send(replies_to(client, calls))
    return [call for call in last if isinstance(call, ScriptCall)]


#: The verbs that put an item into the filter, or claim it.
VERBS: dict[str, Callable[[Any], Any]] = {
    "add": lambda verbs: verbs.add("a"),
    "claim": lambda verbs: verbs.claim("a"),
    "commit": lambda verbs: verbs.commit("a"),
}


@some_shards
@pytest.mark.parametrize("was_seen", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_copy_that_arrives_after_a_clear_changes_nothing(
    open_one: Any, client: redis.Redis, verb: str, was_seen: bool, shards: int
) -> None:
    """The filter is in use again by then. A call that answered "seen" has left no answer on the server."""
    ours, theirs = open_one(shards=shards), open_one(shards=shards)
    theirs.add("the filter's parameters")
    if was_seen:
        theirs.add("a")
    calls = sent(client, VERBS[verb](ours._protocol))
    theirs.clear()
    theirs.add_many(f"item {i}" for i in range(30))
    assert 0 not in [status for status, *_ in replies_to(client, calls)]
    assert Claim.NEW is theirs.claim("a")
    assert theirs.add("a")


@some_shards
@pytest.mark.parametrize("store", [TimeBloom, ExactFilter])
def test_a_call_whose_answer_was_lost_is_made_anew_after_a_clear(
    url: str, name: str, store: Any, shards: int
) -> None:
    """The item is new to it, and seen from then on."""
    losing: list[str] = []
    with (
        LossyProxy(url, lambda _: bool(losing)) as proxy,
        store.from_url(proxy.url, name, shards=shards, retry_for=0) as ours,
        store.from_url(url, name, shards=shards) as theirs,
    ):
        ours.add("before")
        losing.append("this reply")
        with pytest.raises(redis.ConnectionError):
            ours.add_many(["a", "b"])
        losing.clear()
        theirs.clear()
        assert theirs.add("b")
        assert [True, False] == ours.add_many(["a", "b"])
        assert [False, False] == theirs.add_many(["a", "b"])


def test_a_copy_for_an_exact_filter_that_arrives_after_a_clear_changes_nothing(
    client: redis.Redis, url: str, name: str
) -> None:
    with ExactFilter.from_url(url, name) as seen:
        seen.add("a")
        calls = sent(client, seen._protocol.add("a", None))
        seen.clear()
        seen.add("b")
        assert [5] == [status for status, *_ in replies_to(client, calls)]
        assert seen.add("a")


def test_a_client_that_clears_drops_its_pending_answers(open_one: Any, url: str) -> None:
    losing: list[str] = []
    with LossyProxy(url, lambda _: bool(losing)) as proxy:
        ours, theirs = open_one(url=proxy.url, retry_for=0), open_one()
        ours.add("before")
        losing.append("this reply")
        with pytest.raises(redis.ConnectionError):
            ours.add("a")
        losing.clear()
        ours.clear()
        assert theirs.add("a")
        assert not ours.add("a")


def test_an_answer_from_after_a_clear_outlives_what_is_kept_of_the_clear(
    clockwork: Any, name: str
) -> None:
    """That is forgotten after an hour; the answer is half an hour younger."""
    losing: list[str] = []
    with (
        LossyProxy(clockwork.server.url, lambda _: bool(losing)) as proxy,
        TimeBloom.from_url(proxy.url, name, capacity=1000, retry_for=0) as seen,
        redis.Redis.from_url(clockwork.server.url) as server,
    ):
        seen.clear()
        clockwork.set("2019-06-03 00:30:00")
        seen.add("before")
        losing.append("this reply")
        with pytest.raises(redis.ConnectionError):
            seen.add("a")
        losing.clear()
        clockwork.set("2019-06-03 01:10:00")
        assert not server.exists(f"{{{name}}}:layout")
        assert seen.add("after")
        assert [True, False] == [seen.add("a"), seen.add("a")]


def test_a_filter_that_grows_after_a_clear_still_knows_of_it(
    open_one: Any, client: redis.Redis, name: str
) -> None:
    ours, theirs = open_one(capacity=10), open_one(capacity=10)
    theirs.add("the filter's parameters")
    calls = sent(client, ours._protocol.add("a"))
    theirs.clear()
    theirs.add_many(f"item {i}" for i in range(100))
    assert client.get(f"{{{name}}}:layout").startswith("@")
    assert 0 not in [status for status, *_ in replies_to(client, calls)]
    other = open_one(capacity=20)
    other.reconfigure()
    assert client.get(f"{{{name}}}:layout").startswith("@")
    assert [False] * 100 == other.add_many(f"item {i}" for i in range(100))
    other.clear()
    assert [True] * 100 == other.add_many(f"item {i}" for i in range(100))


def test_each_clear_is_later_than_the_last(open_one: Any, client: redis.Redis, name: str) -> None:
    """Also within a millisecond, and with a clock that was set back."""
    seen = open_one()
    client.set(f"{{{name}}}:layout", "@9999999999999;")
    seen.clear()
    assert "@10000000000000;" == client.get(f"{{{name}}}:layout")
