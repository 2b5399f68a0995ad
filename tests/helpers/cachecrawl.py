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
from scrapy.http import HtmlResponse, Response

from tests.helpers.crawl import run


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
    log, got = io.StringIO(), list[list[dict[str, Any]]]()
    logging.basicConfig(stream=log, level=logging.DEBUG)
    # Scrapy's cookies ask it; without a cache of its own it looks for its list on the internet, and logs tracebacks.
    logging.getLogger("tldextract").setLevel(logging.CRITICAL)

    def spider(crawl: dict[str, Any]) -> tuple[type[Cached], dict[str, Any]]:
        own = {"name": crawl.get("name", "tests"), "custom_settings": crawl["settings"]}
        got.append([])
        arguments = {"requests": crawl["requests"], "follow": crawl.get("follow", [])}
        return type("Own", (Cached,), own), {**arguments, "got": got[-1]}

    results = run([*map(spider, crawls)] for crawls in job["rounds"])
    crawls = [
        {**result, "failure": "; ".join(result["failures"]) or None, "got": own}
        for result, own in zip(results, got, strict=True)
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, [resource.RLIM_INFINITY] * 2)  # stdout may be a file
    print(json.dumps({"crawls": crawls, "log": log.getvalue()}))


if __name__ == "__main__":
    main()
