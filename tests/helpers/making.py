"""Stores with awaitable verbs, so that one test body runs on both classes; what is missing on a machine."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from multiprocessing.connection import Connection
from operator import and_, or_, sub, xor
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Self

import pytest
import redis

from tests.helpers import clock
from tests.helpers.localredis import BINARIES, MAIN

IN_CI = os.environ.get("CI") == "true"


def missing(what: str) -> None:
    """A part that a test needs is not on this machine: in CI that is a failure."""
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


def needed(kind: str = MAIN) -> str:
    """Return the program of this kind of server; skip the test if there is none."""
    if kind not in BINARIES:
        missing(kind)
    return BINARIES[kind]


def clock_needed() -> None:
    """Skip the test if no server's clock can be set here."""
    if clock.LIBRARY is None:
        missing("libfaketime, which has a wheel for Linux on x86-64,")


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """A folder that one fork of this run has made, and that all use."""
    root = tmp_path_factory.getbasetemp()
    if root.name.startswith("fork"):
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


Make = Any  # what the fixture `make` is


def _combined(operator: Callable[[Any, Any], Any]) -> Any:
    return lambda one, other: Awaited(operator(one._seen, other._seen))


class Awaited:
    """A store, or a set of a counter's members, with awaitable verbs, so that one test body runs on both drivers."""

    _SETS = ("members", "within", "slice")  # had without waiting
    __or__, __and__, __sub__, __xor__ = map(_combined, (or_, and_, sub, xor))

    def __init__(self, seen: Any) -> None:
        self._seen = seen

    def __getattr__(self, verb: str) -> Any:
        def direct(*args: Any) -> Any:
            return Awaited(getattr(self._seen, verb)(*args))

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            others = [getattr(arg, "_seen", arg) for arg in args]
            return getattr(self._seen, verb)(*others, **kwargs)

        return direct if verb in self._SETS else awaited

    async def aclose(self) -> None:
        self._seen.close()

    async def __aiter__(self) -> Any:
        for member in self._seen:
            yield member

    async def pairs(self) -> Any:
        for pair in self._seen.pairs():
            yield pair


def signal_once(is_so: Callable[[], bool], number: int) -> None:
    """Send this process a signal as soon as that is so."""

    def send() -> None:
        while not is_so():
            sleep(0.001)
        os.kill(os.getpid(), number)

    Thread(target=send).start()


@contextmanager
def giving_up_soon(seen: Any) -> Iterator[None]:
    """Let the connections that the store has wait for a reply for a tenth of a second only."""
    pool = getattr(seen, "_seen", seen).client.connection_pool
    connections = [*pool._available_connections, *pool._in_use_connections]
    usual = [connection.socket_timeout for connection in connections]
    _wait_for(connections, repeat(0.1))
    yield
    # A connection that was made anew meanwhile may be the same object.
    _wait_for(connections, usual)


def _wait_for(connections: Iterable[Any], timeouts: Iterable[float]) -> None:
    for connection, timeout in zip(connections, timeouts, strict=False):
        connection.socket_timeout = timeout
        if isinstance(connection, redis.Connection) and connection._sock:
            connection._sock.settimeout(timeout)
            connection._parser._socket_timeout = timeout  # to which an older redis-py goes back


awaited = Awaited


class Child(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A forked child that does some work. It is waited for, or killed at the end of the block."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(target=work)
        self.start()

    def wait(self) -> int:
        """Its exit code; below 0, the signal that ended it."""
        self.join()
        return int(self.exitcode)

    def kill(self) -> None:
        super().kill()
        assert -signal.SIGKILL == self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        super().kill()
        self.join()


class Partner(Child):
    """A child whose work is given the other end of ``connection``."""

    def __init__(self, work: Callable[[Connection], object]) -> None:
        self.connection, other = multiprocessing.Pipe()

        def talk() -> None:
            self.connection.close()  # else it would not notice its parent's end
            work(other)

        super().__init__(talk)
        other.close()


def in_child(work: Callable[[], Any]) -> Any:
    """Does the work in a forked process; returns its answer."""
    with Partner(lambda parent: parent.send(work())) as child:
        answer = child.connection.recv()  # EOFError: it has printed an error
        child.wait()
    return answer
