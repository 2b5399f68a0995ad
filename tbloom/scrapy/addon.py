"""The add-on: one settings line in place of several."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from tbloom.errors import ConfigError
from tbloom.scrapy.claims.middleware import DownloaderMiddleware, SpiderMiddleware
from tbloom.scrapy.dupefilter.batches import BatchMiddleware
from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
from tbloom.scrapy.settings import MARK, MARKS_DONE, SHADOW

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_SCRAPY_REDIS, _OURS = "scrapy_redis.scheduler.Scheduler", "tbloom.scrapy.scheduler.Scheduler"


def from_crawler(crawler: Crawler) -> Addon:
    """Scrapy calls this where ADDONS names this module in place of the class."""
    raise ConfigError("ADDONS", crawler.settings.getdict("ADDONS"), "'tbloom.scrapy.Addon'")


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls this before the crawl. The project's own settings stay as they are, except
        that with TBLOOM_SHADOW tbloom's dupefilter calls the project's.

        :raises NotConfigured: if the project has another dupefilter; Scrapy logs it, and goes on without the add-on.
        """
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        shadow = SHADOW.value(settings)
        if not issubclass(load_object(chosen), DupeFilter):
            if not shadow:
                message = f"the project sets DUPEFILTER_CLASS to {chosen!r}; remove that line, and tbloom filters"
                raise NotConfigured(message)
            if shadow is True:
                settings.set(SHADOW.name, chosen, settings.getpriority(SHADOW.name) or 0)
            priority = settings.getpriority("DUPEFILTER_CLASS") or 0
            settings.set("DUPEFILTER_CLASS", DupeFilter, priority)
        if global_object_name(load_object(settings["SCHEDULER"])) == _SCRAPY_REDIS:
            priority = settings.getpriority("SCHEDULER") or 0
            settings.set("SCHEDULER", _OURS, priority)
            logger.info("tbloom's add-on sets SCHEDULER to %s, which is scrapy-redis' own", _OURS)
        if shadow:  # nothing is claimed, and the exact dupefilter is asked for each request
            return
        add = settings.setdefault_in_component_priority_dict
        # Nearest to the engine, where no spider middleware drops a request any more.
        add("SPIDER_MIDDLEWARES", BatchMiddleware, -1000)
        if settings.get(MARK.name) in MARKS_DONE:
            # Nearest to the engine: the first to see a request leave the queue, the last to see its end.
            add("DOWNLOADER_MIDDLEWARES", DownloaderMiddleware, -1000)
            add("SPIDER_MIDDLEWARES", SpiderMiddleware, -999)
