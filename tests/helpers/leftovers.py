"""One crawl in a process of its own; the site and the settings come as JSON. Prints how it ends, and what is left of it."""

from __future__ import annotations

import gc
import json
import sys
import threading
from weakref import ref

from scrapy.crawler import CrawlerProcess

from tests.helpers.crawl import SETTINGS, SPIDERS


def main() -> None:
    job = json.loads(sys.argv[1])
    process = CrawlerProcess({**SETTINGS, **job["settings"]}, install_root_handler=False)
    crawler = process.create_crawler(SPIDERS["pages"])
    process.crawl(crawler, site=job["site"], fetched=[], pages=[["a", {}]], pause=0)
    process.start()
    assert crawler.stats
    reason = crawler.stats.get_value("finish_reason")
    left = ref(crawler)
    del crawler
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    print(json.dumps({"reason": reason, "crawler": repr(left()), "threads": names}))
