"""What a client believes the server's clock to say."""

from __future__ import annotations

import time


class ServerClock:
    """The last time the server told, carried on by this machine's monotonic clock.

    It starts from this machine's wall clock, which only has to be right to
    save the first correction; steps of that clock later don't matter.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self.learn(time.time_ns() // 1_000_000)

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def learn(self, server_ms: int) -> None:
        """Takes over what the server just said."""
        self._ahead = server_ms - time.monotonic_ns() // 1_000_000
