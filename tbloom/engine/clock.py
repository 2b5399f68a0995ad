"""The server's clock, as a client knows it."""

from __future__ import annotations

import time


class ServerClock:
    """The server's last known time, plus what has passed since by this machine's monotonic clock.

    It starts from this machine's wall clock. If that is wrong, the server corrects the first call.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self.learn(time.time_ns() // 1_000_000)

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def learn(self, server_ms: int) -> None:
        """Takes over the server's time (ms)."""
        self._ahead = server_ms - time.monotonic_ns() // 1_000_000
