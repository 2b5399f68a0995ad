"""The processes that the demo starts, none of which outlives it."""

from __future__ import annotations

import contextlib
import subprocess
from functools import partial
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., subprocess.Popen[Any]]


@contextlib.contextmanager
def group(signal: str = "KILL") -> Iterator[Start]:
    """Yield a Popen that starts processes in a group of their own, which gets a signal at the end.

    A shell leads the group, and sends the signal when its input ends. This process has the other end of that pipe, so the group ends
    with it, even if it is killed. Ctrl-C does not reach the group: this process cleans up first.
    """
    # If this process is killed while one of the group is stopped, the kernel sends the group a SIGHUP.
    words = ["/bin/sh", "-c", f"trap '' HUP; read _; kill -s {signal} 0"]
    with subprocess.Popen(words, stdin=PIPE, process_group=0) as leader:  # noqa: S603 - our own words
        yield partial(subprocess.Popen, stdin=DEVNULL, process_group=leader.pid)
