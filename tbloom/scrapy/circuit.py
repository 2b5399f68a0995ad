"""The circuit breaker of a crawl's store: what ``TBLOOM_ON_ERROR`` may say, and when the server is tried again."""

from __future__ import annotations

import logging
import time

from redis import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom.errors import ConfigError

logger = logging.getLogger(__name__)

#: What happens during an outage.
ON_ERROR = {
    "raise": "the crawl ends",
    "schedule": "this crawler decides by itself meanwhile",
    "drop": "requests count as seen meanwhile",
}
#: The time between two tries of a server that does not answer (s).
HOLD_OFF = 10.0


class HeldOff(RedisConnectionError):
    """The server is not asked: it did not answer some seconds ago."""


class CircuitBreaker:
    """Opens when a call fails. It then lets a call through every 10 seconds, and closes when that one is answered.

    The log has the beginning and the end of an outage.
    """

    def __init__(self, name: str, on_error: str) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError("on_error", on_error, " or ".join(map(repr, ON_ERROR)))
        self.on_error = on_error
        #: What the log says that happens during an outage.
        hint = "; with 'schedule' it goes on" if on_error == "raise" else ""
        self.effect = f"{ON_ERROR[on_error]} (TBLOOM_ON_ERROR = {on_error!r}{hint})"
        #: Calls that ended in an error, and requests that were scheduled or dropped for lack of an answer.
        self.errors = 0
        self.answers = 0
        self._name = name
        #: How the log names the server.
        self.place = f"filter {name!r}"
        self._next_try: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last call ended in an error."""
        return self._next_try is not None

    @property
    def holds_off(self) -> bool:
        """Whether no call may be sent now."""
        return self._next_try is not None and time.monotonic() < self._next_try

    def check(self) -> None:
        """Raises HeldOff if no call may be sent now."""
        if self.holds_off:
            raise HeldOff("the server did not answer, and is not asked yet")

    def try_again(self) -> None:
        """Lets the next call through."""
        self._next_try = None if self._next_try is None else 0.0

    def worked(self) -> None:
        """Closes the circuit: the server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("filter %r: the server answers again", self._name)

    def failed(self, error: Exception) -> None:
        """Counts an error, and opens the circuit."""
        self.errors += 1
        if self._next_try is None:
            refuses = isinstance(error, OutOfMemoryError | ReadOnlyError)
            does = "refuses to write" if refuses else "does not answer"
            logger.error("%s: the server %s, so %s: %s", self.place, does, self.effect, error)
        self._next_try = time.monotonic() + HOLD_OFF
