"""Threads wait for one of few connections in the order in which they came, and whatever ends one of them, the others go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tbloom import AsyncExactFilter
from tbloom.engine import places as all_places
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import in_child, needed, needs_fork
from tests.helpers.servers import Cluster
from tests.helpers.stores import EXACT, STORES, Store

THREADS, CALLS = 20, 100


def _least_called(seen: Any) -> int:
    """Return the calls of the thread that has made fewest when one has made 100."""
    calls, enough, begin = Counter[int](), threading.Event(), threading.Barrier(THREADS)

    def call(thread: int) -> None:
        begin.wait(60)
        while not enough.is_set():
            found = seen.contains_many(["a", "b"]) if calls[thread] % 2 else [seen.contains("a")]
            assert found[0]
            calls[thread] += 1
            if calls[thread] == CALLS:
                enough.set()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(call, range(THREADS)))
    return min(calls[thread] for thread in range(THREADS))


@pytest.mark.parametrize("callers", [False, True], ids=["from_url", "a caller's client"])
@pytest.mark.parametrize("most", [1, 2, 10])
@pytest.mark.parametrize("store", STORES, ids=str)
def test_no_thread_starves_when_connections_are_few(
    store: Store, url: str, name: str, *, most: int, callers: bool
) -> None:
    """None fails either, also with a client that does not retry (redis-py#2517, celery#2811)."""
    seen = store.open(f"{url}?max_connections={most}", name, callers=callers)
    seen.add("a")
    assert _least_called(seen) > CALLS / 3
    seen.close()


@pytest.mark.parametrize("most", [1, 2])
def test_no_thread_starves_on_a_cluster(cluster: Cluster, name: str, most: int) -> None:
    with EXACT.open(f"{cluster.url}?max_connections={most}", name, shards=3) as seen:
        seen.add_many(["a", "b"])
        assert _least_called(seen) > CALLS / 3


class _Held(redis.Redis):
    """Waits for ``go_on`` before it reads one reply, after ``hold`` has been set."""

    hold: threading.Event
    go_on: threading.Event

    def parse_response(self, *args: Any, **options: Any) -> Any:
        if self.hold.is_set():
            self.hold.clear()
            self.go_on.wait(60)
        return super().parse_response(*args, **options)


@pytest.fixture
def full() -> Iterator[LocalRedis]:
    """A server that refuses a 13th connection."""
    with LocalRedis(needed(), "--maxclients", "12") as server:
        yield server


def test_threads_share_the_connections_that_a_server_takes(full: LocalRedis, name: str) -> None:
    """Calls that it has refused are sent again."""
    with EXACT.open(full.url, name) as seen:
        seen.add("a")
        assert _least_called(seen)


async def test_tasks_share_the_connections_that_a_server_takes(full: LocalRedis, name: str) -> None:
    async with AsyncExactFilter.from_url(full.url, name) as seen:
        await seen.add("a")
        for _ in range(CALLS):
            found = await asyncio.gather(*[seen.contains_many(["a"]) for _ in range(THREADS)])
            assert [[True]] * THREADS == found


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
        client.hold, client.go_on = threading.Event(), threading.Event()
        seen = EXACT.of_client(client, name)
        seen.add("a")
        client.hold.set()
        yield seen


def test_ctrl_c_ends_the_wait_for_a_connection(url: str, name: str) -> None:
    """The place in the line is free for others."""
    with _held(url, name) as seen:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            seen.contains("a")
        seen.client.go_on.set()
        assert _least_called(seen)


@needs_fork
def test_a_forked_child_does_not_wait_for_its_parents_threads(url: str, name: str) -> None:
    with _held(url, name) as seen:
        assert in_child(lambda: seen.contains("a"))


@pytest.mark.parametrize("most", [1, 50])
def test_a_signal_handler_does_not_wait_for_the_call_that_it_interrupts(
    url: str, name: str, most: int
) -> None:
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
            threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGUSR1]).start()
            assert seen.contains("a")
            assert answers == ["Too many connections" if most == 1 else True]
            assert _least_called(seen)
    finally:
        signal.signal(signal.SIGUSR1, before)


_INTERRUPTED = """
import random, signal, sys, threading
from tbloom.engine import places as all_places
all_places.PATIENCE = 0.1
places, tries = all_places.Places(2), 0

def call():
    try:
        places.take()
    finally:
        places.give_back()

signal.signal(signal.SIGALRM, signal.default_int_handler)
while tries < 5000:
    try:
        tries += 1
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0002))
        for _ in range(200):
            call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        sum(range(100))  # here, an interrupt that came before is raised
    except KeyboardInterrupt:
        pass
threads = [threading.Thread(target=lambda: [call() for _ in range(100)]) for _ in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("all have had their places")
"""


def test_interrupted_threads_give_their_places_back() -> None:
    words = [sys.executable, "-c", _INTERRUPTED]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert "all have had their places\n" == ended.stdout, ended.stderr


def test_the_place_of_a_thread_that_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interrupt of ``give_back``."""
    monkeypatch.setattr(all_places, "PATIENCE", 0.1)
    places = all_places.Places(1)
    thread = threading.Thread(target=places.take)
    thread.start()
    thread.join()
    places.take()
    places.give_back()
