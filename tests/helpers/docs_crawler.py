"""One crawler of a tree: settings and arguments come as JSON.

It appends each page to a file once its callback has come to its end, so that the file is right
also if the crawler is killed.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.core.engine import ExecutionEngine
from scrapy.http import Response

from tests.helpers.crawl import run


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
    warnings.simplefilter("ignore")  # scrapy-redis' scheduler uses what Scrapy has deprecated
    logging.basicConfig(level=logging.WARNING)
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1  # an idle engine looks into its queue every 5 s
    run([[(Tree, job["arguments"])]], **job["settings"])


if __name__ == "__main__":
    main()
