"""An item pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from typing_extensions import Self


class Fates:
    """Does with each item what its ``fate`` says."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        fate = item["fate"]
        if "split" in fate:
            scraper = self._crawler.engine.scraper
            await scraper.start_itemproc_async({"fate": "stored"}, response=item["response"])
        if "later" in fate:
            await asyncio.sleep(0.1)
        if "dropped" in fate:
            raise DropItem(fate)
        if "fails" in fate:
            raise ZeroDivisionError
        if "cancelled" in fate:  # Scrapy says nothing of it
            raise asyncio.CancelledError
        return item
