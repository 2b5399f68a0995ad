"""How Ctrl-C and other signals end a command."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def step() -> Iterator[None]:
    """A step of the work: a Ctrl-C within it raises KeyboardInterrupt at its end."""
    with held_back() as look:
        yield
        look()


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Yields a function to call between two steps: it raises KeyboardInterrupt after a Ctrl-C.

    A second Ctrl-C raises KeyboardInterrupt at once.
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
        yield look  # only the main thread can handle signals
        return
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # Signals that nohup, or a shell's background job, ignores stay ignored.
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield look
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack, as Ctrl-C does, so that servers and processes are ended."""

    def end(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        with suppress(AttributeError, ValueError):  # on Windows, or outside the main thread
            number = getattr(signal, name)
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
