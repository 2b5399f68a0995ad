"""scrapy-redis' scheduler, where a crawl can't begin or a command of Scrapy's only tries a spider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import Scheduler as MemoryScheduler
from scrapy_redis import scheduler as scrapy_redis

from tbloom.scrapy.connection import make_client
from tbloom.scrapy.crawler import CrawlEnd, ends_early, is_trial
from tbloom.scrapy.settings import FLUSH

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler


class Scheduler(scrapy_redis.Scheduler):  # type: ignore[misc] # it has no types
    """scrapy-redis' own. That one asks the server as it is made, and Scrapy hides an error there behind one of its own."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Scrapy's constructor. Without a server, one line in the log ends the crawl; a trial leaves the queue alone."""
        if is_trial(crawler):
            return MemoryScheduler.from_crawler(crawler)
        with CrawlEnd(crawler).ending_at_an_error():
            # These name a wrong setting.
            FLUSH.is_on(crawler.settings)
            make_client(crawler.settings)[0].close()
            return super().from_crawler(crawler)
        return MemoryScheduler.from_crawler(crawler)  # of which nothing is asked

    def open(self, spider: Spider) -> None:
        """Scrapy calls this; it looks into the queue. An error ends the crawl."""
        with CrawlEnd(spider.crawler).ending_at_an_error():
            super().open(spider)

    def flush(self) -> None:
        """Clears the queue of all crawlers, unless this crawl ends before its first request."""
        if not ends_early(self.spider.crawler):
            super().flush()
