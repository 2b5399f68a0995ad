"""What a crawl does while its store's server is away, or has no room for writes: it waits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import TypeVar

from redis import RedisError

from tbloom.engine.retries import has_no_room, is_outage
from tbloom.local.claims import DiskFull

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

#: The time between two tries of a server that does not answer, and between two lines of the log that say so (s).
PAUSE, _SAID_EVERY = 0.25, 60.0
#: How long a store tries a call before the server counts as away (s).
_NOTICED_AFTER = 1.0


def is_awaited(error: BaseException) -> bool:
    """Return True if the error goes away by itself, or once there is room for writes."""
    return _has_no_room(error) or (isinstance(error, RedisError) and is_outage(error))


def _has_no_room(error: BaseException) -> bool:
    return isinstance(error, DiskFull) or (isinstance(error, RedisError) and has_no_room(error))


class Outage:
    """Whether the server is away, or has no room for writes.

    Calls wait until that is over, unless the crawl is told to end, or has waited for too long. A call may be made by any thread; the
    event loop's does not sleep.
    """

    def __init__(
        self,
        place: str,
        limit: float | None,
        is_told_to_end: Callable[[], bool],
        is_back: Callable[[], object],
    ) -> None:
        """``place``: how the log names the server. ``limit``: how long the crawl waits (s). ``is_back`` is called after an outage."""
        self._place, self._limit = place, inf if limit is None else limit
        self._is_told_to_end, self._is_back = is_told_to_end, is_back
        #: When the server has last answered (monotonic): one that never has may be no server.
        self._answered_at = -inf
        #: Whether the last call got no answer; since when that is so (monotonic), and when the log says so again.
        self.is_on: bool = False
        self._began = self._said_next = 0.0
        #: The calls that wait for room. Others may be answered meanwhile, such as those that only read.
        self._refused = set[Callable[[], object]]()
        #: Whether the crawl waits no longer, so that no call is made any more.
        self.is_over: bool = False

    def retry_seconds(self, usual: float) -> float:
        """Return how long a store tries a call (s). ``wait_for`` makes a call again that needs longer."""
        if self.is_on:
            return 0.0
        return min(usual, _NOTICED_AFTER) if self._answered_at > -inf else usual

    def wait_for(self, call: Callable[[], T]) -> T:
        """Return the result of the call, once it has one. Raise its error if nothing is waited for, or the server refuses."""
        while (made := self.attempt(call)) is None:
            time.sleep(PAUSE)
        return made.result()

    def attempt(self, call: Callable[[], T]) -> Future[T] | None:
        """Make a call, and return its result or error; None: it is to be made again after ``PAUSE``."""
        made, began, was_refused = Future[T](), time.monotonic(), call in self._refused
        try:
            made.set_result(call())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            if is_refused := _has_no_room(error):
                self._refused.add(call)
            waits = is_awaited(error) and self._goes_on(began, error)
            if not (is_refused and waits):
                self._refused.discard(call)
            if waits:
                return None
            made.set_exception(error)
        else:
            self._refused.discard(call)
            if was_refused:
                self.answered("there is room again")
        return made

    def answered(self, end: str = "the server answers again") -> None:
        """Note that the server has answered. ``end``: what the log says if it was away."""
        if self._refused:
            return
        self._answered_at = time.monotonic()
        was_on, self.is_on = self.is_on, False
        if was_on:
            logger.info("%s: %s", self._place, end)
            self._is_back()

    def _goes_on(self, began: float, error: Exception) -> bool:
        """Note the error of a try that began then; return whether its call waits.

        A try that began within the limit is never the last one: the process may have been frozen since.
        """
        now, is_away = time.monotonic(), not _has_no_room(error)
        if not self.is_on and (began > self._answered_at or not is_away):
            self._began, self._said_next, self.is_on = began, 0.0, True
        away_since = self._began if self.is_on else now
        is_told = self._is_told_to_end()
        self.is_over |= is_told or max(0.0, began - away_since) >= self._limit
        if is_away and self._answered_at == -inf:
            if is_told:  # Scrapy has ended its event loop, perhaps: nobody gets the error
                message = "%s: the crawl fetched no page, because the server did not answer before it was told to end: %s"
                logger.warning(message, self._place, error)
            return False
        if self.is_over:
            return False
        if self.is_on and now >= self._said_next:
            self._said_next = now + _SAID_EVERY
            away = f"{now - away_since:.0f} s"
            message = "%s: nothing can be written since %s, and the crawl waits for room: %s"
            if is_away:
                message = "%s: the server does not answer since %s, and the crawl waits for it: %s"
            logger.warning(message, self._place, away, error)
        return True
