"""Forks wait for the transactions of other threads.

LMDB can't be closed in a child that has a copy of a transaction, nor opened anew there. py-lmdb keeps the reader's
slot of an ended transaction as long as its object exists, and closing the child's copy would free the slot in the
parent, where another thread may use it by then. So the code that ends a transaction also drops its object.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: The longest wait of a fork (s). Only verify(), a very large page, recovery and another process' lock take longer.
_MAX_WAIT = 5.0
_gate = threading.RLock()  # the garbage collector may close a store within
#: The number of transactions that each thread is in.
_depths: dict[int, int] = {}
#: False: this process was forked while a transaction was open.
is_quiet = True
_preparations: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def before(method: Any) -> None:
    """Calls an object's method before each fork that waited for all transactions: one method of each object."""
    _preparations[method.__self__] = method.__func__


@contextmanager
def transaction() -> Iterator[None]:
    """A fork waits until this thread leaves the block."""
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
    global is_quiet  # noqa: PLW0603 - the process has one
    is_quiet = False  # in case Ctrl-C ends the wait
    _gate.acquire()
    deadline = time.monotonic() + _MAX_WAIT
    while _depths.keys() - {threading.get_ident()} and time.monotonic() < deadline:
        time.sleep(0.0002)
    is_quiet = not _depths
    if is_quiet:
        for owner, prepare in list(_preparations.items()):
            prepare(owner)


def _in_child() -> None:
    _depths.clear()
    _gate.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_gate.release, after_in_child=_in_child)
