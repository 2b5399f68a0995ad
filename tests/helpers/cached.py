"""Crawls with an HTTP cache, in a process of their own, and storages of such a cache by themselves.

A job comes as JSON on stdin: rounds of crawls; those of a round run at once, and one round after the other. ``main`` prints
one JSON line: what each crawl has got, its stats and how it ended; and the log.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.misc import load_object
from scrapy.utils.request import RequestFingerprinter
from typing_extensions import Self

from tests.helpers import crawl, forked

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
OURS = "tbloom.scrapy.PageCacheStorage"
THEIRS = "scrapy.extensions.httpcache.FilesystemCacheStorage"


def run(*rounds: list[dict[str, Any]], **job: Any) -> tuple[list[dict[str, Any]], str]:
    """Runs the crawls, round by round; returns their results and the log."""
    given = json.dumps({"rounds": rounds, **job})
    found = forked.Started("tests.helpers.cached", stdin=given).result()
    return found["crawls"], found["log"]


def a_crawl(folder: Path, urls: list[str], **settings: Any) -> dict[str, Any]:
    """A crawl with our cache in a folder."""
    own = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_STORAGE": OURS, "TBLOOM_PAGES_PATH": str(folder)}
    name = settings.pop("name", "tests")
    return {"name": name, "settings": own | settings, "requests": [{"url": url} for url in urls]}


def comparable(result: dict[str, Any]) -> list[str]:
    """The items that must be the same, sorted."""
    for item in result["got"]:
        if item["url"].endswith("/undated") and "error" not in item:
            assert item["headers"].pop("Date")  # Scrapy's, when it came
        # From 2.19 on Scrapy's storage gives back more of a response.
        for name in ("flags", "ip", "protocol", "encoding", "stamped"):
            item.pop(name, None)
    return sorted(json.dumps(item, sort_keys=True) for item in result["got"])


class Idle(Spider):
    name = "tests"


class Opened:
    """A storage, with the crawler of a spider that does not run."""

    def __init__(
        self, folder: Path, fingerprinter: Any = None, storage: str = OURS, **settings: Any
    ) -> None:
        own = {"TBLOOM_PAGES_PATH" if storage == OURS else "HTTPCACHE_DIR": str(folder)}
        given = Settings({**own, **settings})
        self.storage = load_object(storage)(given)
        crawler = Crawler(Idle, given)
        crawler.stats = MemoryStatsCollector(crawler)
        crawler.request_fingerprinter = fingerprinter or RequestFingerprinter(crawler)
        self.spider = Idle.from_crawler(crawler)
        self.storage.open_spider(self.spider)

    def store(self, request: Request | str, response: Response | None = None) -> None:
        request = request if isinstance(request, Request) else Request(request)
        self.storage.store_response(self.spider, request, response or Response(request.url))

    def retrieve(self, request: Request | str) -> Response | None:
        request = request if isinstance(request, Request) else Request(request)
        return self.storage.retrieve_response(self.spider, request)

    @property
    def stats(self) -> dict[str, int]:
        return self.spider.crawler.stats.get_stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close_spider(self.spider)


class Cached(Spider):
    """Makes the requests that it is given, and notes all of the responses; may follow the links to some URLs."""

    name = "tests"
    requests: list[dict[str, Any]]
    follow: list[str]
    got: list[dict[str, Any]]

    async def start(self) -> AsyncIterator[Request]:
        for given in self.requests:
            yield Request(
                **given, callback=self.parse, errback=self.fail, dont_filter=not self.follow
            )

    def parse(self, response: Response) -> Iterator[Request]:
        self.got.append(described(response))
        if self.follow and isinstance(response, HtmlResponse):
            links = {urldefrag(link).url for link in response.css("a::attr(href)").getall()}
            for url in {urljoin(response.url, link) for link in links} & set(self.follow):
                yield Request(url, self.parse, errback=self.fail)

    def fail(self, failure: Any) -> None:
        self.got.append({"url": failure.request.url, "error": failure.type.__name__})


def described(response: Response) -> dict[str, Any]:
    """All that a callback can see of it."""
    return {
        "url": response.url,
        "status": response.status,
        "headers": {
            name.decode("latin-1"): [value.decode("latin-1") for value in values]
            for name, values in response.headers.items()
        },
        "body": response.body.decode("latin-1"),
        "class": type(response).__name__,
        "flags": response.flags,
        "ip": str(response.ip_address),
        "protocol": response.protocol,
        "encoding": getattr(response, "encoding", None),
        "stamped": "cache_timestamp" in response.meta,
    }


def main() -> None:
    job = json.load(sys.stdin)
    if job.get("largest_file"):  # the disk is full for what is larger
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], resource.RLIM_INFINITY))
    log, got = io.StringIO(), list[list[dict[str, Any]]]()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    # Scrapy's cookies ask it; without a cache of its own it looks for its list on the internet, and logs tracebacks.
    logging.getLogger("tldextract").setLevel(logging.CRITICAL)

    def spider(given: dict[str, Any]) -> tuple[type[Cached], dict[str, Any]]:
        own = {"name": given.get("name", "tests"), "custom_settings": given["settings"]}
        got.append([])
        arguments = {"requests": given["requests"], "follow": given.get("follow", [])}
        return type("Own", (Cached,), own), {**arguments, "got": got[-1]}

    results = crawl.run([*map(spider, crawls)] for crawls in job["rounds"])
    crawls = [
        {**result, "failure": "; ".join(result["failures"]) or None, "got": own}
        for result, own in zip(results, got, strict=True)
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, [resource.RLIM_INFINITY] * 2)  # stdout may be a file
    print(json.dumps({"crawls": crawls, "log": log.getvalue()}))


if __name__ == "__main__":
    main()
