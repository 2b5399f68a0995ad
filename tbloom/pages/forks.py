"""Forks wait for the transactions of other threads: LMDB can't be closed in a child that has a copy of one, nor opened anew.

py-lmdb keeps the reader's slot of a transaction that has ended as long as its object is there, and to close the child's
copy would free the slot in the parent, for another thread to use meanwhile. So whoever ends one drops the object too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: So long (s) a fork waits. Only verify(), a very large page, recovery, and a lock that somebody else holds take longer.
_PATIENCE = 5.0
_gate = threading.RLock()  # the garbage collector may close a store within
#: How many transactions each thread is in.
_depths: dict[int, int] = {}
#: Whether the fork that made this process had waited for all.
is_quiet = True


@contextmanager
def transaction() -> Iterator[None]:
    """The calling thread is in a transaction."""
    me = threading.get_ident()
    depth = _depths.get(me, 0)
    try:
        if depth:
            _depths[me] = depth + 1
        else:
            with _gate:
                _depths[me] = 1
        yield
    finally:
        if depth:
            _depths[me] = depth
        else:
            _depths.pop(me, None)


def _before() -> None:
    global is_quiet  # noqa: PLW0603 - of the process
    is_quiet = False  # Ctrl-C may end the wait
    _gate.acquire()
    deadline = time.monotonic() + _PATIENCE
    while _depths.keys() - {threading.get_ident()} and time.monotonic() < deadline:
        time.sleep(0.0002)
    is_quiet = not _depths


def _in_child() -> None:
    _depths.clear()
    _gate.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_gate.release, after_in_child=_in_child)
