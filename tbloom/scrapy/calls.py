"""Calls to the store of one crawl, while the event loop goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from redis import RedisError
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.errors import TBloomError
from tbloom.scrapy.compat import in_loop
from tbloom.scrapy.crawler import end_crawl, is_ending

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from tbloom.scrapy.outage import Answers

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


class Calls:
    """Makes the calls one after the other: with ``in_thread`` in a thread of its own, else at once."""

    def __init__(self, *, in_thread: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "tbloom-calls") if in_thread else None

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
    """One crawl with its store: what asks it, and in which thread."""

    crawler: Crawler
    answers: Answers
    calls: Calls
    #: Where pages are marked, so that links do not wait for it.
    ends_calls: Calls

    @property
    def is_ending(self) -> bool:
        """Whether it ends by an error."""
        return is_ending(self.crawler)

    def fail(self, error: Exception) -> None:
        """Ends the crawl by an error of the filter."""
        if not self.answers.circuit.is_open:  # which the log has
            is_known = isinstance(error, RedisError | TBloomError)
            logger.error("The crawl ends: %s", error, exc_info=None if is_known else error)
        end_crawl(self.crawler)

    def later(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call within ``logging_errors``, unless the crawl ends by an error."""
        if not self.is_ending:
            self.calls.begin(call, partial(self._finish, what))

    @contextmanager
    def logging_errors(self, what: str) -> Iterator[None]:
        """Within it is a call that a crawl can do without: if it fails, the next crawl does the work.

        ``what`` was to be done with requests, for the log. The crawl ends where no policy says otherwise.
        """
        try:
            yield
        except (RedisError, TBloomError) as error:
            if not self.answers.circuit.is_open:  # which the log has
                logger.error("Requests could not be %s: %s", what, error)
            if self.answers.on_error == "raise" or isinstance(error, TBloomError):
                end_crawl(self.crawler)

    def _finish(self, what: str, made: Future[object]) -> None:
        with self.logging_errors(what):
            made.result()
