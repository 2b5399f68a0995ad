"""Crawls with an HTTP cache, in a process of their own: a job comes as JSON on stdin.

A job is rounds of crawls: those of a round run at once, and one round after the other. Prints one JSON line: what each
crawl has got, its stats and how it ended; and the log.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urldefrag, urljoin

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response
from twisted.internet.defer import DeferredList

from tests.helpers.crawl import SETTINGS


class Cached(scrapy.Spider):
    """Makes the requests that it is given, and notes all of the responses; may follow the links to some URLs."""

    name = "tests"
    requests: list[dict[str, Any]]
    follow: list[str]
    got: list[dict[str, Any]]

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for given in self.requests:
            yield scrapy.Request(
                **given, callback=self.parse, errback=self.fail, dont_filter=not self.follow
            )

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.got.append(described(response))
        if self.follow and isinstance(response, HtmlResponse):
            links = {urldefrag(link).url for link in response.css("a::attr(href)").getall()}
            for url in {urljoin(response.url, link) for link in links} & set(self.follow):
                yield scrapy.Request(url, self.parse, errback=self.fail)

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
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    # Scrapy's cookies ask it; without a cache of its own it looks for its list on the internet, and logs tracebacks.
    logging.getLogger("tldextract").setLevel(logging.CRITICAL)
    process = CrawlerProcess(SETTINGS, install_root_handler=False)
    rounds, results = iter(job["rounds"]), []

    def begin_round(_: object = None) -> None:
        ended = []
        for crawl in next(rounds, []):
            name = crawl.get("name", "tests")
            own = {"name": name, "custom_settings": crawl["settings"]}
            crawler = process.create_crawler(type("Own", (Cached,), own))
            result: dict[str, Any] = {"got": [], "failure": None}
            results.append((crawler, result))
            arguments = {"requests": crawl["requests"], "follow": crawl.get("follow", [])}
            outcome = process.crawl(crawler, got=result["got"], **arguments)
            outcome.addErrback(
                lambda failure, result=result: result.update(
                    failure=f"{failure.type.__name__}: {failure.value}"
                )
            )
            ended.append(outcome)
        if ended:
            DeferredList(ended).addBoth(begin_round)

    begin_round()
    process.start()
    for crawler, result in results:
        stats = crawler.stats.get_stats()
        result["stats"] = {
            name: value for name, value in stats.items() if isinstance(value, int | float)
        }
        result["finish_reason"] = crawler.stats.get_value("finish_reason")
    resource.setrlimit(resource.RLIMIT_FSIZE, [resource.RLIM_INFINITY] * 2)  # stdout may be a file
    print(json.dumps({"crawls": [result for _, result in results], "log": log.getvalue()}))


if __name__ == "__main__":
    main()
