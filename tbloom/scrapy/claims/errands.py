"""Calls that a crawl can do without: if one fails, the next crawl takes the requests over."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING

from redis import RedisError

from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tbloom.scrapy.calls import Calls
    from tbloom.scrapy.circuit import CircuitBreaker
    from tbloom.scrapy.crawler import CrawlEnd

logger = logging.getLogger(__name__)


class Errands:
    """Makes such calls, unless the crawl ends by an error."""

    def __init__(self, calls: Calls, circuit: CircuitBreaker, end: CrawlEnd) -> None:
        self._calls, self._circuit, self._end = calls, circuit, end

    def later(
        self, what: str, call: Callable[[], object], then: Callable[[], object] = lambda: None
    ) -> None:
        """Makes a call for which the crawl does not wait, and calls ``then`` if it succeeds."""

        def made(future: Future[object]) -> None:
            try:
                future.result()
            except (RedisError, TBloomError) as error:
                self.failed(what, error)
            else:
                then()

        if not self._end.has_begun:
            self._calls.post(call, made)

    def now(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call."""
        if not self._end.has_begun:
            try:
                self._calls.now(call)
            except (RedisError, TBloomError) as error:
                self.failed(what, error)

    def failed(self, what: str, error: RedisError | TBloomError) -> None:
        """Logs the error of a call, and ends the crawl where no policy says otherwise."""
        if not self._circuit.is_open:  # which the log has
            logger.error("Requests could not be %s: %s", what, error)
        if self._circuit.on_error == "raise" or isinstance(error, TBloomError):
            self._end.begin()
