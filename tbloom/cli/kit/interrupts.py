"""How Ctrl-C, SIGTERM and SIGHUP end a command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _signals() -> list[signal.Signals]:
    """Return the signals that end a command, except those that it ignores (as nohup and background shells make it do)."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in ends if signal.getsignal(number) is not signal.SIG_IGN]


def as_ctrl_c() -> None:
    """Make each signal that ends a command raise KeyboardInterrupt."""
    for number in _signals():
        signal.signal(number, _interrupt)


def _interrupt(*_: Any) -> None:
    """Raise KeyboardInterrupt. From then on, another Ctrl-C kills, and other signals are ignored: when a terminal is closed,
    the kernel and the shell send a SIGHUP each."""
    for number in _signals():
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def step() -> Iterator[None]:
    """Delay signals within a step: the first raises KeyboardInterrupt at its end, a second Ctrl-C at once."""
    received = set[int]()

    def note(number: int, _frame: Any) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.add(number)

    before = {number: signal.signal(number, note) for number in _signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        _interrupt()
