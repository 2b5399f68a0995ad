"""One settings line in place of several."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from tbloom.scrapy import settings as options
from tbloom.scrapy.claims.middleware import BatchMiddleware, DownloaderMiddleware, SpiderMiddleware
from tbloom.scrapy.dupefilter.dupefilter import DupeFilter

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Called by Scrapy before the crawl. What the project sets itself stays as it is,
        but with TBLOOM_SHADOW tbloom's dupefilter calls the project's."""
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        if options.shadowed(settings):
            _shadow(settings, chosen)
            return
        if not issubclass(load_object(chosen), DupeFilter):
            logger.warning(
                "tbloom's add-on changes nothing: the project sets DUPEFILTER_CLASS to %r", chosen
            )
            return
        settings["SPIDER_MIDDLEWARES"].setdefault(BatchMiddleware, -999)
        if settings.get("TBLOOM_MARK") == "done":
            # The first that sees a request leave the queue, and the last that sees what came of it.
            settings["DOWNLOADER_MIDDLEWARES"].setdefault(DownloaderMiddleware, -1000)
            settings["SPIDER_MIDDLEWARES"].setdefault(SpiderMiddleware, -1000)


def _shadow(settings: BaseSettings, chosen: Any) -> None:
    """Beside the dupefilter that the project has chosen, if it has; no requests are asked for ahead."""
    if issubclass(load_object(chosen), DupeFilter):
        return
    if options.shadowed(settings) is True:
        settings.set("TBLOOM_SHADOW", chosen, settings.getpriority("TBLOOM_SHADOW") or 0)
    settings.set("DUPEFILTER_CLASS", DupeFilter, settings.getpriority("DUPEFILTER_CLASS") or 0)
