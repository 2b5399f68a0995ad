"""Looks at the front page every two seconds, and follows what no crawler has fetched in the last seven days."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response

SITE = os.environ.get("SITE_URL", "http://localhost:8000/")


class News(scrapy.Spider):
    name = "news"
    custom_settings = {  # noqa: RUF012 - Scrapy reads it once
        "ADDONS": {"tbloom.scrapy.Addon": 500},
        "REDIS_URL": os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        "TBLOOM_CAPACITY": 100_000,
        "DOWNLOAD_DELAY": 0.1,
        "DEPTH_LIMIT": 20,
    }

    async def start(self) -> AsyncIterator[Any]:
        while True:
            yield scrapy.Request(SITE, dont_filter=True)
            await asyncio.sleep(2)

    def parse(self, response: Response) -> Iterator[Any]:
        if response.url != SITE:
            yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="li a")
