"""One settings line in place of several."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_DUPEFILTER = "tbloom.scrapy.DupeFilter"


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Called by Scrapy before the crawl. What the project sets itself stays as it is."""
        settings.set("DUPEFILTER_CLASS", _DUPEFILTER, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        if chosen != _DUPEFILTER:
            logger.warning(
                "tbloom's add-on changes nothing: the project sets DUPEFILTER_CLASS to %r", chosen
            )
