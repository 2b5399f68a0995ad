"""How Ctrl-C ends a command whose work has steps."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def step() -> Iterator[None]:
    """A step of the work: a Ctrl-C within it raises KeyboardInterrupt at its end, and a second one at once."""
    came = False

    def note(_number: int, _frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
