"""What is done while the server does not answer: decide without it, and ask it again now and then."""

from __future__ import annotations

import logging
import time

from tbloom.errors import ConfigError

logger = logging.getLogger(__name__)

#: What an item is taken for while the server does not answer: nothing (the error comes through), new, or seen.
ON_ERROR = ("raise", "schedule", "drop")
#: After an error, the server is left alone for so long (s).
HOLD_OFF = 10.0


class Guessed(Exception):
    """Thrown into a flow whose caller was told that its items are new, because the server did not answer."""


class CircuitBreaker:
    """Lets every call through while the server answers, and one now and then while it does not.

    It says once that the server is lost, and once that it is back.
    """

    def __init__(self, name: str, on_error: str) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError("on_error", on_error, " or ".join(map(repr, ON_ERROR)))
        self.on_error = on_error
        #: Calls that ended in an error, and answers that were given without the server.
        self.errors = 0
        self.answers = 0
        self._name = name
        self._next_try: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server did not answer when it was asked last."""
        return self._next_try is not None

    def lets_through(self) -> bool:
        """Whether a call is to be made now."""
        if self._next_try is None or self.on_error == "raise":
            return True
        now = time.monotonic()
        if now < self._next_try:
            return False
        self._next_try = now + HOLD_OFF  # the others wait for how this one ends
        return True

    def worked(self) -> None:
        """The server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("filter %r: the server answers again", self._name)

    def failed(self, error: Exception) -> None:
        """The server has not answered."""
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
