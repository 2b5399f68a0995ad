"""Threads wait for one of few connections in the order in which they came. Whatever ends one of them, the others get theirs."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import AsyncExactFilter
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import awaited, in_child, needed, signal_once
from tests.helpers.stores import EXACT

THREADS = 20


class _Held(redis.Redis):
    """Waits for ``go_on`` before it reads one reply, after ``hold`` has been set; ``read`` has the threads that read replies."""

    hold: threading.Event
    go_on: threading.Event
    read: list[int]

    def parse_response(self, *args: Any, **options: Any) -> Any:
        self.read.append(threading.get_ident())
        if self.hold.is_set():
            self.hold.clear()
            self.go_on.wait()
        return super().parse_response(*args, **options)


@pytest.fixture
def full() -> Iterator[LocalRedis]:
    """A server that refuses a 13th connection."""
    with LocalRedis(needed(), "--maxclients", "12") as server:
        yield server


def test_threads_share_the_connections_that_a_server_takes(full: LocalRedis, name: str) -> None:
    """A refused connection is a lost one: the call is sent again. Nothing is promised about turns."""
    with (
        EXACT.open(full.url, name, retry_for=600) as seen,
        ThreadPoolExecutor(60) as threads,
    ):
        seen.add("a")
        answers = threads.map(lambda _: [seen.contains("a") for _ in range(30)], range(60))
        assert [[True] * 30] * 60 == list(answers)


async def test_tasks_share_the_connections_that_a_server_takes(full: LocalRedis, name: str) -> None:
    async with AsyncExactFilter.from_url(full.url, name, retry_for=600) as seen:
        await seen.add("a")
        for _ in range(4):
            found = await asyncio.gather(*[seen.contains_many(["a"]) for _ in range(60)])
            assert [[True]] * 60 == found


@contextmanager
def _held(url: str, name: str) -> Iterator[Any]:
    """A store with one connection, which a call in another thread holds until ``go_on`` is set, or the block ends."""
    with _holding(url, name, 1) as seen, ThreadPoolExecutor(1) as thread:
        holding = thread.submit(seen.contains, "a")
        while seen.client.hold.is_set():
            pass
        try:
            yield seen
        finally:
            seen.client.go_on.set()
        assert holding.result()


@contextmanager
def _holding(url: str, name: str, most: int) -> Iterator[Any]:
    """A store whose next call keeps its connection until ``go_on`` is set."""
    with _Held.from_url(f"{url}?max_connections={most}") as client:
        client.hold, client.go_on, client.read = threading.Event(), threading.Event(), []
        seen = EXACT.of_client(client, name)
        seen.add("a")
        client.hold.set()
        yield seen


def test_no_thread_starves_when_connections_are_few(url: str, name: str) -> None:
    """Each of those that wait is served before any is served again (redis-py#2517, celery#2811)."""
    with ThreadPoolExecutor(THREADS) as threads, _held(url, name) as seen:
        calls = [
            threads.submit(lambda: [seen.contains("a") for _ in range(9)]) for _ in range(THREADS)
        ]
        while len(seen._sender.turns.waiting) < THREADS:
            time.sleep(0.001)
        before = len(seen.client.read)
        seen.client.go_on.set()
        assert [[True] * 9] * THREADS == [call.result() for call in calls]
        assert THREADS == len({*seen.client.read[before : before + THREADS]})


def test_ctrl_c_ends_the_wait_for_a_connection(url: str, name: str) -> None:
    """The place in the line is free for others."""
    with _held(url, name) as seen:
        signal_once(lambda: bool(seen._sender.turns.waiting), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            seen.contains("a")
        seen.client.go_on.set()
        assert seen.contains("a")


def test_a_forked_child_does_not_wait_for_its_parents_threads(url: str, name: str) -> None:
    with _held(url, name) as seen:
        assert in_child(lambda: seen.contains("a"))


@pytest.mark.parametrize("most", [1, 50])
def test_a_signal_handler_waits_not_for_its_own_thread(url: str, name: str, most: int) -> None:
    """It gets an answer, or an error where it would need a second connection."""
    answers: list[Any] = []

    def look(*_: Any) -> None:
        try:
            answers.append(seen.contains("a"))
        except redis.ConnectionError as error:
            answers.append(str(error))
        seen.client.go_on.set()

    before = signal.signal(signal.SIGUSR1, look)
    try:
        with _holding(url, name, most) as seen:
            signal_once(lambda: not seen.client.hold.is_set(), signal.SIGUSR1)
            assert seen.contains("a")
            assert answers == ["Too many connections" if most == 1 else True]
            assert seen.contains("a")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
async def test_a_call_whose_process_was_frozen_is_tried_once_more(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Its second try began within ``retry_for``, and found its connection lost when the process went on."""
    tries = []

    class Freezes(kind):  # type: ignore[misc]
        def execute_command(self, *words: Any, **options: Any) -> Any:
            tries.append(words)
            if len(tries) == 2:
                later = monotonic() + 3600
                monkeypatch.setattr("time.monotonic", lambda: later)
            if len(tries) <= 2:
                raise redis.ConnectionError("lost")
            return super().execute_command(*words, **options)

    client = Freezes.from_url(url)
    seen: Any = EXACT.of_client(client, name, retry_for=60)
    seen = awaited(seen) if kind is redis.Redis else seen
    assert await seen.add("a")
    monkeypatch.undo()
    assert not await seen.add("a")
    await seen.aclose()
    closed = client.close() if kind is redis.Redis else await client.aclose()
    assert closed is None
