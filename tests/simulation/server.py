"""The server of the simulation: a real Redis, whose clock a test moves."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.client import NEVER_DECODE

from tbloom.engine.flow import Call
from tests.helpers.localredis import LocalRedis, find_binary

#: A schedule takes less (s).
_LONGEST_SCHEDULE = 0.3
_SHIFT = Path(__file__).with_name("shift.c")


class Server:
    """Executes calls, one after another, as a server with many clients does."""

    def __init__(self, socket: str, shift: Path | None) -> None:
        self.client = redis.Redis(unix_socket_path=socket, single_connection_client=True)
        self.async_client = redis.asyncio.Redis(unix_socket_path=socket)
        self._shift, self._passed, self._has_forgotten = shift, 0, False

    def execute(self, call: Call) -> Any:
        """The reply, or redis-py's error for it."""
        try:
            return self.client.execute_command(*call.words, **{NEVER_DECODE: True})
        except redis.exceptions.NoScriptError as error:
            # Only a schedule that forgets them meets that: others would depend on what was played before.
            return error if self._has_forgotten else self.execute(call.with_text())  # type: ignore[union-attr]
        except redis.RedisError as error:
            return error

    @property
    def has_clock(self) -> bool:
        """Whether ``move_clock`` works: a C compiler is here."""
        return self._shift is not None

    def move_clock(self, seconds: float) -> None:
        """Moves the server's clock; a negative number moves it back."""
        assert self._shift
        self._passed += round(1000 * seconds)
        self._shift.write_text(str(self._passed))
        self.client.ping()  # a server reads its clock before it serves commands

    def begin(self) -> None:
        """Sets the clock right, and waits where a minute ends now: else the moves of a schedule depend on it."""
        self._has_forgotten = False
        if self._passed:
            self.move_clock(-self._passed / 1000)
        left = 60 - time.time() % 60
        if left < _LONGEST_SCHEDULE:
            time.sleep(left)

    def forget_scripts(self) -> None:
        """As after a restart or a failover."""
        self._has_forgotten = True
        self.client.script_flush()

    def keys(self, name: str) -> list[bytes]:
        """The keys of a store."""
        found: list[bytes] = self.client.keys(f"{{{name}}}*")
        return found

    def without_ttl(self, name: str) -> list[bytes]:
        """Those of a store's keys that never leave."""
        keys = self.keys(name)
        with self.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.pttl(key)
            ttls: Sequence[int] = pipe.execute()
        return [key for key, ttl in zip(keys, ttls, strict=True) if ttl == -1]


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server of one's own; its clock can be moved where the machine has a C compiler."""
    binary, compiler = find_binary(), shutil.which("cc") or shutil.which("gcc")
    assert binary, "a redis-server is needed"
    env, shift = {}, None
    if compiler:
        library, shift = folder / "shift.so", folder / "shift"
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(_SHIFT), "-ldl"]
        subprocess.run(command, check=True)
        shift.write_text("0")
        env = {"LD_PRELOAD": str(library), "SHIFT_FILE": str(shift)}
    socket = str(folder / "redis.sock")
    with LocalRedis(binary, "--unixsocket", socket, env=env):
        server = Server(socket, shift)
        try:
            yield server
        finally:
            server.client.close()
