"""The circuit breaker: during an outage, answers are given without the server, which is tried now and then."""

from __future__ import annotations

import logging
import time

from tbloom.errors import ConfigError

logger = logging.getLogger(__name__)

#: During an outage: raise the error, answer "new", or answer "seen".
ON_ERROR = ("raise", "schedule", "drop")
#: The time between two tries of a server that does not answer (s).
HOLD_OFF = 10.0


class AnsweredWithoutServer(Exception):
    """Thrown into a flow after "new" was answered in place of the server, so that its items are not pending."""


class CircuitBreaker:
    """Lets every call through while the server answers, and one every 10 seconds during an outage.

    It logs the beginning and the end of an outage once each.
    """

    def __init__(self, name: str, on_error: str) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError("on_error", on_error, " or ".join(map(repr, ON_ERROR)))
        self.on_error = on_error
        #: Calls that ended in an error, and calls that were answered without the server.
        self.errors = 0
        self.answers = 0
        self._name = name
        self._next_try: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last call ended in an error."""
        return self._next_try is not None

    def lets_through(self) -> bool:
        """Whether a call may be sent now."""
        if self._next_try is None or self.on_error == "raise":
            return True
        now = time.monotonic()
        if now < self._next_try:
            return False
        self._next_try = now + HOLD_OFF  # other calls wait for the result of this one
        return True

    def worked(self) -> None:
        """Closes the circuit: the server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("filter %r: the server answers again", self._name)

    def failed(self, error: Exception) -> None:
        """Counts an error, and opens the circuit."""
        self.errors += 1
        if self.on_error == "raise":
            return
        if self._next_try is None:
            what = "new" if self.on_error == "schedule" else "seen"
            logger.error(
                "filter %r: the server does not answer; items are taken for %s meanwhile (on_error=%r): %s",
                self._name,
                what,
                self.on_error,
                error,
            )
        self._next_try = time.monotonic() + HOLD_OFF
