"""Kill processes that this one has started, once it has ended, however it ended: by SIGKILL, too.

A child process, the guard, reads a pipe. The pipe ends when its only writer, this process, has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

#: The end of the guard's pipe to which this process writes, if it has a guard.
_pipe: list[int] = []


def watch(pid: int) -> None:
    """Kill this child once the calling process has ended, unless ``forget`` was called first."""
    if not _pipe:
        reader, writer = os.pipe()
        # In a session of its own, so that a signal to this process' group does not reach it.
        # Isolated: this folder's modules must not hide Python's own.
        words = [sys.executable, "-IS", __file__]
        subprocess.Popen(words, stdin=reader, start_new_session=True)
        os.close(reader)
        _pipe.append(writer)
    _tell("+", pid)


def forget(pid: int) -> None:
    """Stop watching a process that has ended. The system may reuse its ID."""
    _tell("-", pid)


def reap(process: subprocess.Popen[Any]) -> None:
    """Wait for the end of a process that is watched."""
    process.wait()
    forget(process.pid)


def _tell(sign: str, pid: int) -> None:
    for pipe in _pipe:
        os.write(pipe, f"{sign}{pid}\n".encode())


def _leave() -> None:
    """Close a forked child's copy of the pipe, which would keep it open."""
    for pipe in _pipe:
        os.close(pipe)
    _pipe.clear()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_leave)


def _guard() -> None:
    """Read which processes to watch until the pipe ends, and kill those that are left."""
    watched = set[int]()
    for line in sys.stdin:
        (watched.add if line[0] == "+" else watched.discard)(int(line[1:]))
    for pid in watched:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
