"""Calls that a crawl can do without: if one fails, the next crawl takes the requests over."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

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
        self, what: str, call: Callable[[], Any], then: Callable[[Any], object] = lambda _: None
    ) -> Future[Any] | None:
        """Makes a call for which the crawl does not wait; ``then`` gets the result, if it succeeds."""

        def made(future: Future[object]) -> None:
            try:
                result = future.result()
            except (RedisError, TBloomError) as error:
                self.failed(what, error)
            else:
                then(result)

        return None if self._end.has_begun else self._calls.post(call, made)

    def failed(self, what: str, error: RedisError | TBloomError) -> None:
        """Logs the error of a call, and ends the crawl where no policy says otherwise."""
        if not self._circuit.is_open:  # which the log has
            logger.error("Requests could not be %s: %s", what, error)
        if self._circuit.on_error == "raise" or isinstance(error, TBloomError):
            self._end.begin()
