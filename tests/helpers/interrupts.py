"""Signals whose handlers raise, as Ctrl-C's does."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any


class Interrupt(Exception):
    """What a signal handler raises."""


def interrupted(call: Any, seconds: float) -> Any:
    """What the call returns, or None if a signal has interrupted it."""

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with suppress(Interrupt):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            answer = call()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return answer
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None
