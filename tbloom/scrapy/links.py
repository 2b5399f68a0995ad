"""Links: what the filter is asked about a request that is to enter the queue."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scrapy import Request

from tbloom import Claim, Note
from tbloom.errors import ConfigError
from tbloom.scrapy.crawl import Crawl, Stage
from tbloom.scrapy.done.page import Page, Token
from tbloom.scrapy.meta import arguments_of, look_of, version_of
from tbloom.scrapy.outage import ClaimStore

logger: logging.Logger = logging.getLogger(__name__)


class NoAnswer(Enum):
    """In place of the filter's answer; the value is its stat, after ``tbloom/``."""

    #: The crawl ends, and the request is dropped.
    DROPPED = "dropped"
    #: A value in its meta is wrong.
    WRONG = "wrong"


#: What becomes of a request.
Answer = Claim | NoAnswer


@dataclass(slots=True, eq=False)
class Pending:
    """A request that is to enter the queue."""

    request: Request
    #: The item of its page; None: the filter is not asked.
    item: bytes | None = None
    #: What the filter is searched for: the item, or the item in a version.
    look: bytes = b""
    #: The hash of the version; b"": there is none.
    version: bytes = b""
    #: The arguments of ``add`` or ``claim``, as pairs.
    arguments: tuple[tuple[str, Any], ...] = ()
    answer: Answer | None = None
    # With "done":
    #: The page that goes on as this request, the token that it gets in the queue, and the note that is kept with its claim; None: it is
    #: not written yet.
    page: Page | None = None
    token: Token | None = None
    note: Note | str | None = ""
    #: The page whose callback or errback has yielded the request.
    source: Page | None = None

    @property
    def is_to_ask(self) -> bool:
        """Whether the filter is to be asked for it."""
        return self.item is not None and self.answer is None


def link_of(request: Request, crawl: Crawl, *, claims: bool) -> Pending:
    """Return what the filter is asked about a link, with the answer where none is needed.

    A wrong value in its meta is logged. ``claims``: whether it is claimed, or added.
    """
    if crawl.is_ending or crawl.stage >= Stage.QUEUE_CLOSED:
        return Pending(request, answer=NoAnswer.DROPPED)
    seen, crawler = crawl.seen, crawl.crawler
    try:
        arguments = arguments_of(request, seen, crawler.settings, claims=claims)
        item, version = crawler.request_fingerprinter.fingerprint(request), version_of(request)
    except ConfigError as error:
        logger.error("Spider %s: a request is dropped: %s", crawl.spider.name, error)
        return Pending(request, answer=NoAnswer.WRONG)
    look = look_of(item, version, seen.config)
    pending = Pending(request, item, look, version, arguments)
    if not arguments and isinstance(seen, ClaimStore):
        pending.answer = seen.known(item, look)
    return pending
