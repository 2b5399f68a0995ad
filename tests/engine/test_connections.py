"""The connections of a filter are reused, replaced when they break, and never shared with another process."""

from __future__ import annotations

import signal
from functools import partial
from itertools import count
from threading import Event
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import TimeBloom
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import giving_up_soon, in_child, signal_once
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM

each_client = pytest.mark.parametrize(
    "callers", [False, True], ids=["from_url", "a caller's client"]
)


def connections(client: redis.Redis, name: str) -> list[str]:
    """Return the ids of the server's connections of this name."""
    return [each["id"] for each in client.client_list() if each["name"] == name]


def named(url: str, name: str) -> str:
    """Return a URL whose connections have this name on the server."""
    return f"{url}?client_name={name}"


async def test_a_late_reply_does_not_answer_the_next_call(
    make: Any, own_server: LocalRedis
) -> None:
    """After a time-out, the connection is closed, so that its late reply is never read."""
    assert own_server.process is not None
    seen = make(url=f"{own_server.url}?socket_timeout=600", retry_for=0.0)
    assert await seen.add("old")
    with giving_up_soon(seen):
        own_server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(redis.TimeoutError):
            await seen.contains("new")
    own_server.process.send_signal(signal.SIGCONT)
    assert [await seen.contains("old"), await seen.contains("new")] == [True, False]


def test_a_connection_is_reused_after_an_error_reply(
    url: str, name: str, client: redis.Redis
) -> None:
    """Also after NOSCRIPT, when the script is sent in full."""
    with TimeBloom.from_url(named(url, name), name) as seen:
        assert seen.add_many(["a"]) == [True]
        before = connections(client, name)
        client.script_flush()
        assert seen.add_many(["a"]) == [False]
        client.script_flush()
        assert seen.add_many(["a", *map(str, range(1000))]) == [False, *[True] * 1000]
        assert connections(client, name) == before


@pytest.mark.parametrize(
    ("driver", "callers"),
    [("async", True), pytest.param("sync", False, marks=pytest.mark.check)],
)
async def test_other_clients_wait_for_at_most_four_calls(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch, driver: str, *, callers: bool
) -> None:
    """The server never has more than four calls of a connection, however many items are added at once."""
    items, together = [f"item {i}" for i in range(5000)], set[int]()
    kind: Any = (redis if driver == "sync" else redis.asyncio).client.Pipeline
    execute = kind.execute

    def noted(pipeline: Any, *args: Any, **options: Any) -> Any:
        together.add(len(pipeline.command_stack))
        return execute(pipeline, *args, **options)

    monkeypatch.setattr(kind, "execute", noted)
    seen = BLOOM.awaited(url, name, driver=driver, callers=callers)
    assert await seen.add_many(items) == [True] * 5000
    assert await seen.contains_many(items) == [True] * 5000
    await seen.aclose()
    assert max(together) == 4


def test_a_forked_child_does_not_use_its_parents_connection(
    url: str, name: str, client: redis.Redis
) -> None:
    """Parent and child each use a connection of their own (redis-py#863)."""
    with TimeBloom.from_url(named(url, name), name) as seen:
        assert [True, True] == [seen.add(item) for item in ("a", "is prepared")]
        kept = connections(client, name)
        answers, held = in_child(
            lambda: ([seen.add(item) for item in "abb"], connections(client, name))
        )
        assert [False, True, False] == answers
        assert {*kept} < {*held}
        assert [seen.add("b"), seen.add("c")] == [False, True]
        assert kept[0] in connections(client, name)


@pytest.mark.parametrize("size", [1, 3], ids=["add", "add_many"])
@each_client
def test_a_reply_to_an_interrupted_call_answers_no_other(
    url: str, name: str, *, callers: bool, size: int
) -> None:
    """Ctrl-C comes between a command and its reply, which arrives later."""
    items, go_on = [f"new {i}" for i in range(size)], Event()
    with (
        Proxy(url, {3: Fault.LATE_REPLY}.get, late=go_on) as proxy,
        BLOOM.open(proxy.url, name, callers=callers) as seen,
    ):
        seen.add_many(["old", "old 2", "old 3"])
        add = partial(seen.add_many, items) if size > 1 else partial(seen.add, items[0])
        signal_once(lambda: bool(proxy.struck), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            add()
        go_on.set()
        assert [False] * 3 == [seen.add(item) for item in ("old", "old 2", "old 3")]
        assert [True] * size == seen.add_many(items)
        assert [False] * size == seen.add_many(items)


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupted_connect_leaves_no_reply_to_the_next_call(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Ctrl-C comes after redis-py has sent one of its first commands, and before it reads the reply."""
    replies, read = count(1), redis.Connection.read_response

    def interrupted_read(*args: Any, **options: Any) -> Any:
        if next(replies) == number:
            raise KeyboardInterrupt
        return read(*args, **options)

    with TimeBloom.from_url(url, name) as seen:
        monkeypatch.setattr(redis.Connection, "read_response", interrupted_read)
        with pytest.raises(KeyboardInterrupt):
            seen.add("a")
        assert [True, True] == seen.add_many(["a", "b"])
        assert [False, False, True] == seen.add_many(["a", "b", "c"])
        assert [True, False] == seen.contains_many(["c", "d"])
