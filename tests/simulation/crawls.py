"""A crawl without Scrapy's engine: each of its turns fetches one page, or lets some time pass.

What tbloom's modules for Scrapy are asked is here and nowhere else. Their threads are the crawl's own turn, their timers go when
the crawl has nothing else to do, and what becomes of a page is given by the case.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis import RedisError
from scrapy import Request, Spider, signals
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.request import request_from_dict
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Timers
from twisted.python.failure import Failure

from tbloom import Claim
from tbloom.errors import TBloomError
from tbloom.scrapy.crawl import Calls, Crawl
from tbloom.scrapy.done.pages import Pages
from tbloom.scrapy.outage import CrawlBloom
from tests.simulation.cases import Played, client_of

if TYPE_CHECKING:
    from tests.simulation.crawl_cases import CrawlAccount
    from tests.simulation.server import Clock
    from tests.simulation.world import World

#: The crawl whose turn it is, in the thread that asks.
_turn = ContextVar["PlayedCrawl"]("turn")
#: A crawl's time goes on by so much with each page, and when it has nothing else to do (s).
_STEP = 0.5


@contextmanager
def on_played_time(clock: Clock) -> Iterator[None]:
    """Timers of tbloom's modules for Scrapy are those of the crawl whose turn it is, and their clock is the schedule's."""
    shown = SimpleNamespace(
        monotonic=lambda: clock.monotonic_ns() / 1e9, time=time.time, sleep=lambda _: None
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for name, m in sys.modules.items() if name.startswith("tbloom.scrapy.")]:
            if hasattr(module, "call_later"):
                patch.setattr(module, "call_later", _call_later)
            if vars(module).get("time") is time:
                patch.setattr(module, "time", shown)
        logger = logging.getLogger("tbloom.scrapy")
        patch.setattr(logger, "level", logging.CRITICAL + 1)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
        yield
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def _call_later(delay: float, call: Callable[..., object], *arguments: Any) -> Any:
    timer = _turn.get().timers.callLater(delay, call, *arguments)
    return SimpleNamespace(cancel=lambda: timer.active() and timer.cancel())


class _Filter(Played, CrawlBloom):
    """A crawl's filter."""


class _Calls(Calls):
    """Calls that are made at once."""

    def begin(self, call: Callable[[], Any], then: Callable[[Future[Any]], object]) -> None:
        future: Future[Any] = Future()
        try:
            future.set_result(self._outage.wait_for(call) if self._outage else call())
        except Exception as error:  # noqa: BLE001 - the future has it
            future.set_exception(error)
        then(future)

    async def run(self, call: Callable[[], Any]) -> Any:
        return self._outage.wait_for(call) if self._outage else call()

    async def ended(self) -> None:
        """All have ended."""


class _Fingerprints:
    def fingerprint(self, request: Request) -> bytes:
        return item_of(request.url)


class _Signals:
    def __init__(self) -> None:
        #: What is to be called as the crawl begins.
        self.starts: list[Callable[[], object]] = []

    def connect(self, call: Callable[[], object], signal: object) -> None:
        if signal is signals.engine_started:
            self.starts.append(call)

    def send_catch_log(self, *_: Any, **__: Any) -> None:
        """Nobody listens."""


def item_of(url: str) -> bytes:
    """The item as which a filter has the page."""
    return hashlib.blake2b(url.encode(), digest_size=20).digest()


class PlayedCrawl:
    """One crawl. ``turn`` is what a caller asks again and again, until it answers that the crawl has ended."""

    def __init__(self, world: World, number: int, name: str, **arguments: Any) -> None:
        self.world, self.number, self.timers = world, number, Timers()
        account: Any = world.account
        self._account: CrawlAccount = account
        self._fails = arguments.pop("fails", True)
        self._queue = deque[dict[str, Any]]()
        #: What is fetched before the queue.
        self.first = deque[Request]()
        settings = Settings(
            {
                "TBLOOM_MARK": "done",
                "TBLOOM_FAILED_PAUSE": 31_536_000,
                "CONCURRENT_REQUESTS": 1,  # it gives away all but one
            }
        )
        self.spider = Spider("pages")
        self.seen = _Filter(
            client_of(world.player, number),
            name,
            granularity="1h",
            capacity=1000,
            shards=1,
            session_ttl=150,
            retry_for=1,
            **arguments,
        )
        self.seen.world, self._signals = world, _Signals()
        crawler: Any = SimpleNamespace(
            settings=settings,
            spider=self.spider,
            spidercls=Spider,
            engine=SimpleNamespace(
                spider=self.spider,
                spider_is_idle=lambda: False,
                scraper=SimpleNamespace(enqueue_scrape=None),
                close_spider_async=lambda **_: Deferred(),
            ),
            stats=None,
            signals=self._signals,
            request_fingerprinter=_Fingerprints(),
            get_extension=lambda _: None,
            get_downloader_middleware=lambda _: None,
        )
        self.crawl = Crawl(crawler)
        self.crawl.scheduler = self
        with self._having_its_turn():
            self.crawl.open(self.seen)
        self.crawl.link_calls = self.crawl.page_calls = _Calls(self.crawl.outage)
        with self._having_its_turn():
            self.pages = Pages(self.crawl, self, self.seen)
        self.has_begun = self.has_ended = False

    # What the library asks of the scheduler below

    def enqueue_in_project(self, request: Request) -> bool:
        """Queues the request, unless the filter answers that it is not new."""
        if not request.dont_filter:
            answer = self.pages.project.answer or self.pages.answer_to(request)
            if answer is not Claim.NEW:
                return False
        self._queue.append(request.to_dict(spider=self.spider))
        return True

    @property
    def queued(self) -> int:
        """How many requests are queued."""
        return len(self.first) + len(self._queue)

    def next_in_project(self) -> Request | None:
        """The next request of the queue."""
        if self.first:
            return self.first.popleft()
        return request_from_dict(self._queue.popleft(), spider=self.spider) if self._queue else None

    # What callers ask

    def turn(self) -> bool:
        """Fetches a page, or lets time pass where there is none; returns whether the crawl goes on."""
        if self.has_ended:
            return False
        with self._having_its_turn():
            if not self.has_begun:
                self.has_begun = True
                for start in self._signals.starts:
                    start()
                self._follow(self._account.start)
            elif self.crawl.is_ending:
                self._close()
            elif request := self.pages.next_request():
                self._fetch(request)
                self.timers.advance(_STEP)
            elif self.timers.getDelayedCalls():
                self.timers.advance(_STEP)
            elif not (self.queued or self.pages.is_busy):
                self._close()
            self.timers.advance(0)
        return not self.has_ended

    def clear(self) -> None:
        """Forgets everything, whatever the last call met."""
        self.seen.clear()

    def contains(self, url: str) -> bool:
        """Whether the page is marked."""
        self.seen._is_closed = False  # the account looks once its crawl has ended
        return self.seen.contains(item_of(url))

    def can_have(self, url: str) -> bool:
        """Whether the page is new, and nobody works on it."""
        return self.seen.claim(item_of(url)) is Claim.NEW

    def _send_heartbeat(self) -> None:
        with suppress(RedisError):
            self.seen._send_heartbeat()

    def _stop_retrying(self) -> None:
        self.seen._stop_retrying()

    # A page

    def _follow(self, urls: list[str]) -> None:
        for url in urls:
            self.pages.enqueue(Request(url))

    def _fetch(self, request: Request) -> None:
        work, url = self.pages.work, request.url
        page = work.fetching(request)
        fate = self._account.fetched(self.number, url) if self._fails else ""
        assert page is not None, f"{url} is fetched as no page"
        if page.token.deaths:
            self.pages.committer.note_death(page)
            self.pages.committer.send()
        if fate == "download":
            work.fetched(Failure(OSError("no answer")), page)
        else:
            response = Response(url, request=request)
            work.fetched(response, page)
            work.reached_callback(response)
            if fate == "callback":
                work.callback_raised(response, ValueError())
            else:
                self._follow(self._account.links_of(url))
                self._account.succeeds(self.number, url)
        work.scraped(request)

    def _close(self) -> None:
        self.has_ended = True
        if self.crawl.is_ending:  # others may have its pages before it has told the server of all
            self._account.failed_crawls.add(self.number)
        with suppress(RedisError, TBloomError):
            _run(self.pages.close())
            _run(self.pages.committer.finish())
        with suppress(RedisError, TBloomError):
            self.seen.close()
        self.world.gone.add(self.number)
        if self.crawl.is_ending:
            self._account.failed_crawls.add(self.number)

    @contextmanager
    def _having_its_turn(self) -> Iterator[None]:
        before = _turn.set(self)
        try:
            yield
        finally:
            _turn.reset(before)


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs what waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
