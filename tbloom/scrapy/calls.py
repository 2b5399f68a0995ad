"""Calls to the store of one crawl, while the event loop goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redis import RedisError

from tbloom.errors import TBloomError

if TYPE_CHECKING:
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

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, awaited."""
        return await asyncio.wrap_future(self._thread.submit(call)) if self._thread else call()

    def now(self, call: Callable[[], T]) -> T:
        """The result of a call; the event loop waits for it, and for those before it."""
        return self._thread.submit(call).result() if self._thread else call()

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """A call for which nothing waits."""
        if self._thread:
            return self._thread.submit(call)
        future: Future[Any] = Future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - the future has it
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Ends the thread, once its calls are made."""
        if self._thread:
            self._thread.shutdown()


class Errands:
    """Makes calls that a crawl can do without: if one fails, the next crawl takes the requests over.

    It makes none while the crawl ends by an error.
    """

    def __init__(self, calls: Calls, answers: Answers, end: CrawlEnd) -> None:
        self._calls, self.answers, self.end = calls, answers, end

    def later(
        self, what: str, call: Callable[[], Any], then: Callable[[Any], object] = lambda _: None
    ) -> Future[Any] | None:
        """Makes a call for which the crawl does not wait; ``then`` gets the result, if it succeeds. None: nothing is on its way."""
        if self.end.has_begun:
            return None
        made = self._calls.begin(call)
        if not self._calls.in_thread:
            self._finish(what, then, made)
            return None
        loop = asyncio.get_running_loop()
        finish = partial(self._finish, what, then)
        made.add_done_callback(lambda done: loop.call_soon_threadsafe(finish, done))
        return made

    def failed(self, what: str, error: RedisError | TBloomError) -> None:
        """Logs the error of a call, and ends the crawl where no policy says otherwise."""
        if not self.answers.circuit.is_open:  # which the log has
            logger.error("Requests could not be %s: %s", what, error)
        if self.answers.on_error == "raise" or isinstance(error, TBloomError):
            self.end.begin()

    def _finish(self, what: str, then: Callable[[Any], object], made: Future[Any]) -> None:
        try:
            result = made.result()
        except (RedisError, TBloomError) as error:
            self.failed(what, error)
        else:
            then(result)
