"""What a crawl writes with its claims: tokens for queues, and notes for other crawlers."""

from __future__ import annotations

from itertools import count as numbers
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.note import RUNNING, Note
from tbloom.scrapy.claims.token import Token
from tbloom.scrapy.crawler import spider_of
from tbloom.scrapy.notes import note_request
from tbloom.scrapy.settings import TAKE_OVER

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.calls import Crawl
    from tbloom.scrapy.stores import CrawlBloom


class Claimant:
    """One crawl, as it claims requests in the filter ``seen``; ``shared``: other processes take them out of its queue."""

    def __init__(self, crawl: Crawl, seen: CrawlBloom, *, shared: bool) -> None:
        self.crawl, self.seen, self.shared = crawl, seen, shared
        self._takes_over = TAKE_OVER.value(crawl.crawler.settings)
        self._numbers = numbers()
        #: The fingerprints of pages that have failed in this crawl, which does not try them again.
        self.failed = set[str]()

    def token(self, fingerprints: tuple[str, ...], deaths: int | None = None) -> Token:
        """A new token of this session."""
        return Token(self.seen.session, next(self._numbers), fingerprints, deaths)

    def is_holder(self, token: Token) -> bool:
        """Whether this session surely has the token's claims."""
        return not self.shared and token.session == self.seen.session

    def note(
        self, request: Request, fingerprints: tuple[str, ...], deaths: int = 0, kind: str = RUNNING
    ) -> str:
        """The note of a request; "" where none is wanted. Raises NotNotable."""
        if not self._takes_over:
            return ""
        spider = spider_of(self.crawl.crawler)
        return Note(fingerprints, deaths, note_request(request, spider)).text(spider, kind)

    def renew(self, items: list[bytes], notes: list[str]) -> None:
        """Writes other notes with claims of this session."""
        self.seen.claim_many(items, None, notes, self.seen.session)

    def hand_over(self, token: Token) -> None:
        """Whoever takes the request out of a shared queue claims it anew."""
        if self.shared:
            self.seen.hand_over(token.items)
