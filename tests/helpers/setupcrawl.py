"""What a project may have in its settings, and its spider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.http import Response, TextResponse

#: The page that something befalls.
TARGET = "/p/3"
#: scrapy-redis' scheduler, whose queue several crawlers may share.
SHARED = "scrapy_redis.scheduler.Scheduler"
#: "done, local": without a server.
MARKS = ("scheduled", "done", "done, local")


class Follows(scrapy.Spider):
    """Follows all links from page 0 on; each page is an item. A set-up changes what is done with the target."""

    name = "setups"
    site: str
    items: str
    #: Where the log's errors are noted while it runs.
    errors: list[str]
    noting: Any
    #: The errback of all requests.
    failed: Any = None
    #: How often the target has been parsed.
    visits = 0

    async def start(self) -> AsyncIterator[Any]:
        self.noting.errors = self.errors
        yield self.request("/p/0")

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return scrapy.Request(f"{self.site}{path}", errback=self.failed, **more)

    def parse(self, response: Response) -> Any:
        if not response.url.endswith(TARGET):
            return self.page(response)
        self.visits += 1
        return self.target(response)

    def page(self, response: Response) -> Iterator[Any]:
        yield {"page": urlsplit(response.url).path}
        yield from self.links(response)

    def links(self, response: Response) -> Iterator[scrapy.Request]:
        if isinstance(response, TextResponse):
            yield from map(self.request, response.css("a::attr(href)").getall())

    def target(self, response: Response) -> Any:
        return self.page(response)


@dataclass(frozen=True)
class Setup:
    """What a project may have, and what becomes of the pages of a small site."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    spider: type[Follows] = Follows
    #: What the site answers a path with, time after time, and from then on with the last one: a status, the path that it
    #: redirects to, or None, where the connection is lost.
    surprises: Mapping[str, list[Any]] = field(default_factory=dict)
    pages: int = 12
    #: How long an answer takes (seconds).
    seconds: float = 0.0
    #: The pages that are left to the next crawl.
    left: Iterable[str] = ()
    #: How many crawlers there are at a time.
    crawlers: int = 1
    #: How often a page may be asked for beyond what Scrapy's own filter does.
    again: int = 0

    def paths(self) -> list[str]:
        """The pages that links lead to."""
        return [f"/p/{number}" for number in range(self.pages)]

    def works_with(self, mark: str) -> bool:
        """Whether the mark works with it: "done, local" is for one process at a time, and "done" needs no queue in Redis."""
        if mark == "done, local" and self.crawlers > 1:
            return False
        return mark == "scheduled" or self.settings.get("SCHEDULER") != SHARED

    def not_marked(self, mark: str) -> set[str]:
        """The pages that are not marked, because they or their items failed."""
        return set() if mark == "scheduled" else {*self.left}
