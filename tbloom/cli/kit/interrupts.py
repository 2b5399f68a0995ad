"""Ctrl-C between two steps of a command's work, not within one."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def step() -> Iterator[None]:
    """One step of the work: a Ctrl-C that comes within it ends the command after it."""
    with held_back() as look:
        yield
        look()


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Yields what is to be called between two steps: it raises KeyboardInterrupt if one has come.

    A second one is not held back.
    """
    came: list[int] = []

    def note(number: int, _frame: Any) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    def look() -> None:
        if came:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield look  # only there can signals be handled
        return
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # What nohup, or a script's background job, has us ignore stays ignored.
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield look
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
