"""A spider that reads the list pages of a site once an hour, and each article once a week.

    scrapy runspider news.py -a start=https://example.com/ -O articles.json

Start it as often as you like, on any number of machines.
"""

import os
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import Response

from tbloom.scrapy import Addon


class News(scrapy.Spider):
    name = "news"
    custom_settings = {  # noqa: RUF012 - as Scrapy has it
        "ADDONS": {Addon: 500},
        "REDIS_URL": os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        "TBLOOM_GRANULARITY": "h",
        "TBLOOM_SLICES": 7 * 24,
        "TBLOOM_CAPACITY": 10_000,
    }

    def __init__(self, start: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response: Response) -> Iterator[Any]:
        """A list page."""
        for link in response.css("a.article"):
            yield response.follow(link, self.parse_article)
        for link in response.css("a.next"):
            yield response.follow(link, meta={"tbloom_within": 1})

    def parse_article(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
