"""Links wait in the scheduler for the filter's answer, and no callback waits: they are accepted at once, asked about
together, and handed on in order to the scheduler below, whose dupefilter has the answer by then."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis import RedisError
from scrapy import Request, signals
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import call_later

from tbloom import Claim
from tbloom.arguments import check_keep, check_ttl, check_within
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.claims.ends import Ends
from tbloom.scrapy.claims.page import Page, Token
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.crawler import Crawl
from tbloom.scrapy.outage import Answer, AnyStore, CrawlBloom, CrawlExact, Guess
from tbloom.scrapy.settings import KEEP, STORE, TTL, WITHIN, Setting, naming_settings

logger: logging.Logger = logging.getLogger(__name__)

#: So many links go in one call. (With 200 and a server 50 ms away, a crawl of 450 pages a second, with 11 links each, took 1.6
#: times as long as with Scrapy's own filter, with 1,000 1.3 times: `make bench ARGS="--only crawls"`.)
_BATCH = 1_000
#: So many enter the queue in one turn of the event loop, which stands still meanwhile.
_TURN = 100
#: While more wait, the engine takes no further request out of the queue.
_FULL = 5_000
_ARGUMENTS = {WITHIN, KEEP, TTL}


@dataclass(slots=True, eq=False)
class Link:
    """A request that is to enter the queue."""

    request: Request
    #: What the filter is asked for; None: nothing.
    item: bytes | None = None
    #: The arguments of ``add`` or ``claim``, as pairs.
    given: tuple[tuple[str, Any], ...] = ()
    answer: Answer | None = None
    # With "done" and "parsed":
    #: The page that it goes on as, the token that it has (None: it is not claimed), and the note of its claim.
    page: Page | None = None
    token: Token | None = None
    note: str = ""
    #: The session that claimed it before it came out of a queue.
    owner: str = ""


class Links:
    """The links of one crawl on their way into the queue: the project's scheduler, if they wait before it; else None."""

    #: New requests are claimed.
    claims = False
    #: The ends of their pages, if these are followed.
    ends: Ends | None = None

    def __init__(self, crawl: Crawl, queue: Any) -> None:
        self.crawl: Crawl = crawl
        self._queue = queue
        #: The answer that the dupefilter gives now.
        self._given: Answer | None = None
        self._line = deque[Link]()
        #: Those that have their answers, and are not handed on yet.
        self._known = deque[Link]()
        self._is_asking = self._is_closed = False
        #: The number of links that were met, and how many of them are handed on.
        self.met: int = 0
        self.answered: int = 0

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self.met - self.answered

    @property
    def is_full(self) -> bool:
        """So many wait that no further page should be fetched."""
        return self.waiting > _FULL

    def enqueue(self, request: Request) -> bool:
        """A request is to enter the queue: True if it has, or may yet."""
        return self._enter(self._link(request))

    def next_request(self) -> Request | None:
        """The next request that is to be fetched; None: there is none now."""
        request: Request | None = self._queue.next_below()
        return request

    def answer_to(self, request: Request) -> Answer:
        """What the dupefilter answers to the scheduler. It asks the filter for what has not waited."""
        if self._given is not None:
            return self._given
        try:
            link = self._link(request, is_asked=True)
            if link.item is not None and link.answer is None:
                if self._queue is None:
                    self._answer([link])
                else:
                    self.crawl.calls.now(partial(self._answer, [link]))
        except (RedisError, TBloomError) as error:  # Scrapy hangs where a dupefilter raises
            self.crawl.fail(error)
            return self._counted(Guess.DROPPED)
        self._answered_now(link, request)
        return self._counted(link.answer or Claim.NEW)

    async def close(self) -> None:
        """Returns once no link waits."""
        while self.met > self.answered:
            self._ask()
            self._hand_on_some()
            await self.crawl.calls.run(lambda: None)
        self._is_closed = True

    def _link(self, request: Request, *, is_asked: bool = False) -> Link:
        """The link; with an answer where there is nothing to ask. A wrong value in the request's meta ends the crawl.

        ``is_asked``: the scheduler asks, whatever the request's ``dont_filter`` is.
        """
        if request.dont_filter and not is_asked:
            return Link(request)
        if self.crawl.is_ending or self._is_closed:
            return Link(request, answer=Guess.DROPPED)
        settings, seen = self.crawl.crawler.settings, self.crawl.answers.seen
        try:
            given = _arguments_of(request, seen, settings, claims=self.claims)
        except TBloomError as error:
            self.crawl.fail(error)
            return Link(request, answer=Guess.DROPPED)
        link = Link(request, item := self.crawl.fingerprint(request), given)
        if not given and isinstance(seen, CrawlBloom):
            link.answer = seen.known(item)
        return link

    def _answered_now(self, link: Link, request: Request) -> None:
        """The scheduler below has asked by itself for a request that it is about to queue."""

    def _enter(self, link: Link) -> bool:
        if (link.item is None or link.answer is not None) and self.met == self.answered:
            return self._hand_on(link)
        self.met += 1
        self._line.append(link)
        if len(self._line) == 1 and not self._is_asking:
            call_later(0, self._ask)  # with those that come in this turn of the event loop
        return True

    def _ask(self) -> None:
        if self._is_asking or not self._line:
            return
        self._is_asking = True
        batch = [self._line.popleft() for _ in range(min(_BATCH, len(self._line)))]
        self.crawl.calls.begin(partial(self._answer, batch), partial(self._have_answers, batch))

    def _answer(self, batch: list[Link]) -> None:
        """Asks the filter for the links of a batch, in the thread of the calls."""
        groups = defaultdict[Any, list[Link]](list)
        for link in batch:
            if link.item is not None and link.answer is None:
                groups[link.given].append(link)
        for given, links in groups.items():
            self._ask_together(links, [link.item or b"" for link in links], dict(given))

    def _ask_together(self, links: list[Link], items: list[bytes], given: dict[str, Any]) -> None:
        notes = [link.note for link in links] if self.claims else None
        answers = self.crawl.answers.ask(items, notes, **given)
        for link, answer in zip(links, answers, strict=True):
            link.answer = answer

    def _have_answers(self, batch: list[Link], asked: Future[None]) -> None:
        try:
            asked.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self.crawl.fail(error)
        for link in batch:
            if link.item is not None and link.answer is None:
                link.answer = Guess.DROPPED
        self._known.extend(batch)
        if len(self._known) == len(batch):
            self._hand_on_some()
        self._is_asking = False
        self._ask()

    def _hand_on_some(self) -> None:
        """Hands on some of the links that have their answers; the others follow in the next turn of the event loop."""
        for _ in range(min(_TURN, len(self._known))):
            self._hand_on_later(self._known.popleft())
            self.answered += 1
        if self._known:
            call_later(0, self._hand_on_some)
        look_again(self.crawl.crawler.engine)

    def _hand_on_later(self, link: Link) -> None:
        """Says what the engine would say, which believes that the request is queued."""
        crawler = self.crawl.crawler
        try:
            if not self._hand_on(link):
                signals_ = crawler.signals
                signals_.send_catch_log(signals.request_dropped, request=link.request, spider=crawler.spider)  # fmt: skip
        except Exception:
            logger.exception("%s could not be scheduled", link.request)

    def _hand_on(self, link: Link) -> bool:
        """Hands the request on to the scheduler below; returns whether it is queued."""
        if link.item is not None and link.answer is not None:
            self._counted(link.answer)
        return self._put(link.request, link.answer)

    def _counted(self, answer: Answer) -> Answer:
        self.crawl.count(f"tbloom/{answer.value}")
        return answer

    def _put(self, request: Request, answer: Answer | None) -> bool:
        """Hands the request on to the scheduler below, whose dupefilter gives this answer; None: it asks the filter."""
        self._given = answer
        try:
            return bool(self._queue.enqueue_below(request))
        finally:
            self._given = None


def _arguments_of(
    request: Request, seen: AnyStore, settings: BaseSettings, *, claims: bool
) -> tuple[tuple[str, Any], ...]:
    """The arguments of ``add`` or ``claim`` that are in the request's meta, as pairs. Raises ConfigError that names the key."""
    meta = request.meta
    if not _ARGUMENTS & meta.keys():
        return ()
    names = {"ttl": TTL} if isinstance(seen, CrawlExact) else {"within": WITHIN, "keep": KEEP}
    for key in (_ARGUMENTS - {*names.values()}) & meta.keys():
        expected = f"to be left out with TBLOOM_STORE = {STORE.value(settings)!r}"
        raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
    if claims:  # the end of the page says how long it is kept
        del names["keep"]
    given = {name: meta[key] for name, key in names.items() if key in meta}
    with naming_settings({n: Setting(f"meta[{key!r}] of {request}") for n, key in names.items()}):
        if isinstance(seen, CrawlExact):
            check_ttl(given["ttl"])
        else:
            slices = seen.config.slices
            check_keep(given.get("keep"), given.get("within"), slices)
            check_within(given.get("within"), slices)
    return (*given.items(),)
