"""Calls to the store of one crawl, while the event loop goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from redis import RedisError
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.errors import TBloomError
from tbloom.scrapy.compat import in_loop

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from tbloom.scrapy.crawler import CrawlEnd
    from tbloom.scrapy.outage import Answers

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Calls:
    """Makes the calls one after the other: with ``in_thread`` in a thread of its own, else at once."""

    def __init__(self, *, in_thread: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "tbloom-calls") if in_thread else None
        #: The event loop does not wait for ``run`` and ``begin``.
        self.in_thread = in_thread

    def now(self, call: Callable[[], T]) -> T:
        """The result of a call; the event loop waits for it, and for those before it."""
        return self._thread.submit(call).result() if self._thread else call()

    def begin(self, call: Callable[[], T], then: Callable[[Future[T]], object]) -> None:
        """Makes a call for which nothing waits; the event loop calls ``then`` once it has ended."""
        if self._thread:
            enter = in_loop()
            self._thread.submit(call).add_done_callback(partial(enter, then))
            return
        future: Future[T] = Future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - the future has it
            future.set_exception(error)
        then(future)

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, awaited; what ``begin`` began before has ended by then."""
        done: Deferred[Future[T]] = Deferred()
        self.begin(call, done.callback)
        return (await maybe_deferred_to_future(done)).result()

    def close(self) -> None:
        """Ends the thread, once its calls are made."""
        if self._thread:
            self._thread.shutdown()


@dataclass(frozen=True)
class Crawl:
    """One crawl with its store: what asks it, in which thread, and how the crawl ends by an error."""

    crawler: Crawler
    answers: Answers
    calls: Calls
    #: Where pages are marked, so that links do not wait for it.
    ends_calls: Calls
    end: CrawlEnd

    def later(
        self,
        what: str,
        call: Callable[[], T],
        then: Callable[[T], object] = lambda _: None,
        calls: Calls | None = None,
    ) -> bool:
        """Makes a call that a crawl can do without: if it fails, the next crawl does the work.

        ``what`` was to be done with requests, for the log; ``then`` gets the result. False: the crawl ends by an error,
        and makes no such calls.
        """
        if self.end.has_begun:
            return False
        (calls or self.calls).begin(call, partial(self._finish, what, then))
        return True

    def failed(self, what: str, error: RedisError | TBloomError) -> None:
        """Logs the error of a call, and ends the crawl where no policy says otherwise."""
        if not self.answers.circuit.is_open:  # which the log has
            logger.error("Requests could not be %s: %s", what, error)
        if self.answers.on_error == "raise" or isinstance(error, TBloomError):
            self.end.begin()

    def _finish(self, what: str, then: Callable[[T], object], made: Future[T]) -> None:
        try:
            result = made.result()
        except (RedisError, TBloomError) as error:
            self.failed(what, error)
        else:
            then(result)
