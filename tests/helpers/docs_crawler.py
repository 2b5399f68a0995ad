"""One crawler of a tree: settings and arguments come as JSON.

It appends each page to a file once its callback has come to its end, so that the file is right
also if the crawler is killed.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.utils.reactor import install_reactor


class Tree(scrapy.Spider):
    """The numbers from 0: one link leads to each page, and 7 from it. Each page is an item."""

    name = "tree"
    site: str
    pages: int
    log_file: str

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self.site}0", dont_filter=True)

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        number = int(response.url.removeprefix(self.site))
        for child in range(7 * number + 1, min(7 * number + 8, self.pages)):
            yield scrapy.Request(f"{self.site}{child}")
        yield {"page": f"page {number}"}
        with Path(self.log_file).open("a", encoding="utf-8") as log:
            log.write(f"{number}\n")
        if number == 0 and self.settings.getbool("TREE_START_FAILS"):
            raise ZeroDivisionError


def main() -> None:
    job = json.loads(sys.argv[1])
    warnings.simplefilter(
        "ignore"
    )  # scrapy-redis' scheduler uses functions that Scrapy has deprecated
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1  # an idle engine looks into its queue every 5 s
    settings = {
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "LOG_VERSIONS": [],
        "CONCURRENT_ITEMS": 10,
        "RETRY_ENABLED": False,
    }
    process = CrawlerProcess({**settings, **job["settings"]})
    process.crawl(Tree, **job["arguments"])
    process.start()


if __name__ == "__main__":
    main()
