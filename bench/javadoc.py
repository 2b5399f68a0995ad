"""Measures a fleet: several crawlers, each a Scrapy process, that share a crawl of real pages by scrapy-redis or by tbloom.

The pages are Java's documentation, from Debian's package openjdk-17-doc. A separate process serves them on loopback. Redis
writes a log (``appendonly``) and has a replica.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urldefrag

from scrapy import Request, Spider, signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.http import HtmlResponse, TextResponse

from bench.onecrawler import Site
from bench.progress import shown
from bench.serving import Server, child, documents, fresh
from bench.tables import Table

PACKAGE, DOCS = "openjdk-17-doc", Path("usr/share/doc/openjdk-17-jre-headless/api")
#: The names of the page that begins a crawl. The crawl stays in its folder.
HOME = "module-summary.html", "package-summary.html"
_QUEUE = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}
_ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "TBLOOM_KEY": "fleet"}
_PLUGIN = "scrapy_redis_bloomfilter"
SCRAPY_REDIS = "scrapy-redis"
SCHEDULED, DONE, CLASS = '`"scheduled"`', '`"done"`', "`DUPEFILTER_CLASS`"
WITH_QUEUE = ", scrapy-redis' queue"
#: Each way's settings. Its crawlers share scrapy-redis' queue, or each has Scrapy's own.
WAYS: dict[str, dict[str, Any]] = {
    SCRAPY_REDIS: {**_QUEUE, "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"},
    "scrapy-redis-bloomfilter": {
        **_QUEUE,
        "SCHEDULER": f"{_PLUGIN}.scheduler.Scheduler",
        "DUPEFILTER_CLASS": f"{_PLUGIN}.dupefilter.RFPDupeFilter",
    },
    CLASS + WITH_QUEUE: {
        **_QUEUE,
        "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter",
        "TBLOOM_KEY": "fleet",
    },
    SCHEDULED + WITH_QUEUE: {**_QUEUE, **_ADDON, "TBLOOM_MARK": "scheduled"},
    SCHEDULED: {**_ADDON, "TBLOOM_MARK": "scheduled"},
    DONE: {**_ADDON, "TBLOOM_MARK": "done"},
}
#: A crawler with a shared queue ends after so many seconds without a page: others may still queue requests.
PATIENCE = 2.0
#: Crawlers, each a process.
Fleet = Sequence[subprocess.Popen[str]]


class Pages(NamedTuple):
    """The pages that a crawl reaches, and the process that serves them."""

    #: The URL of the site.
    site: str
    #: The folder that is crawled, below that of all documents.
    folder: str
    #: The first page and its links.
    first: list[str]
    #: Every page that can be reached.
    reached: set[str]
    #: How many links each page has.
    links: list[int]


class Follower(Spider):
    """Follows the links within a folder. Each page is an item."""

    name = "fleet"
    site: str
    folder: str
    first: list[str]
    #: Whether other crawlers may queue requests for this one.
    shared: bool

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Follower:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.wait_for_others, signals.spider_idle)
        return spider

    async def start(self) -> AsyncIterator[Request]:
        """Wait until all crawlers are ready; then yield the first requests."""
        self.fetched = list[str]()
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        self.began, self.last = time.monotonic(), 0.0
        for path in self.first:
            yield Request(self.site + path)

    def parse(self, response: TextResponse) -> Iterator[Any]:
        yield {"url": response.url}
        yield from map(Request, links(response, self.site + self.folder))
        self.fetched.append(response.url.removeprefix(self.site))
        self.last = time.monotonic()

    def wait_for_others(self) -> None:
        if self.shared and time.monotonic() - max(self.began, self.last) < PATIENCE:
            raise DontCloseSpider

    def report(self, errors: int) -> None:
        figures = {"began": self.began, "last": self.last, "fetched": self.fetched}
        print(json.dumps({**figures, "errors": errors}), flush=True)


def links(response: TextResponse, begin: str) -> list[str]:
    """Return the URLs that begin with ``begin``, each once. A page that is linked with two fragments has two."""
    found = map(response.urljoin, response.css("a::attr(href)").getall())
    return [*dict.fromkeys(url for url in found if url.startswith(begin) and ".html" in url)]


def crawl(job: dict[str, Any]) -> None:
    """Run one crawler in this process, and report."""
    settings = {
        "LOG_LEVEL": "ERROR",
        "LOG_VERSIONS": [],
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    }
    process = AsyncCrawlerProcess({**settings, **job["settings"]})
    crawler = process.create_crawler(Follower)
    spiders = list[Any]()  # after an error, the crawler has none

    def opened(spider: Any) -> None:
        spiders.append(spider)

    crawler.signals.connect(opened, signals.spider_opened)
    process.crawl(crawler, **job["arguments"])
    process.start()
    assert crawler.stats
    [spider] = spiders
    spider.report(crawler.stats.get_value("log_count/ERROR", 0))


@contextmanager
def served(root: Path, folder: str) -> Iterator[Pages]:
    """Yield the pages that can be reached from the folder's first one, while a separate process serves them."""
    home = next(folder + name for name in HOME if (root / folder / name).is_file())
    queue, counts, first = [f"/{home}"], list[int](), list[str]()
    met = {*queue}
    for path in queue:  # the loop extends the list
        body = (root / path[1:]).read_bytes()
        response = HtmlResponse(f"http://site{path}", body=body, encoding="utf-8")
        found = links(response, f"http://site/{folder}")
        counts.append(len(found))
        paths = [*dict.fromkeys(urldefrag(url).url.removeprefix("http://site") for url in found)]
        first = first or [*queue, *paths]
        queue += [link for link in paths if link not in met and (root / link[1:]).is_file()]
        met.update(paths)
    with child("-m", "bench.javadoc", "site", str(root), folder) as port:
        address = f"http://127.0.0.1:{port}"
        yield Pages(address, f"/{folder}", first, {*queue}, counts)


async def _serve(root: Path, folder: str) -> None:
    head = "HTTP/1.1 {}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
    missing = head.format("404 Not Found", 0).encode()
    Site.answers = defaultdict(lambda: missing)
    for file in (root / folder).rglob("*.html"):
        body = file.read_bytes()
        path = f"/{file.relative_to(root).as_posix()}".encode()
        Site.answers[path] = head.format("200 OK", len(body)).encode() + body
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Site, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def measure(
    *, ways: Sequence[str] = (*WAYS,), folder: str = "java.base/", crawlers: int = 8
) -> list[Table]:
    """Measure a page's costs for the server with so many crawlers."""
    costs = dict[str, list[float]]()
    with _servers() as server, served(documents(PACKAGE, DOCS), folder) as pages:
        idle = counts_when_idle(server)
        for way in shown(ways, f"crawls of {len(pages.reached)} pages"):
            with ready(way, crawlers, server.url, pages) as fleet:
                (*amounts, _), reported = spent(server, idle, fleet)
            fetched = {page for report in reported for page in report["fetched"]}
            costs[way] = [amount / len(fetched) for amount in amounts]
            server.empty()
    reference, *_ = costs[SCRAPY_REDIS]
    rows = [
        [way, reference / cpu, cpu, 1e6 / cpu, *others] for way, (cpu, *others) in costs.items()
    ]
    columns = {"": "", "x scrapy-redis": ",.1f", "server time per page (us)": ",.0f"}
    columns |= {"pages/s that fill one core": ",.0f", "calls per page": ".2f"}
    columns |= {"bytes sent per page": ",.0f", "bytes logged per page": ",.0f"}
    return [Table("fleet", columns, rows), _site(pages)]


@contextmanager
def _servers() -> Iterator[Server]:
    """Yield a server that writes a log and has a replica."""
    keeps = "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"
    server = fresh(*keeps, "--repl-diskless-sync-delay", "0")
    replica = fresh(*keeps, "--replicaof", "127.0.0.1", str(server.port))
    with server, replica:
        while server.client.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.05)
        yield server


@contextmanager
def ready(
    way: str,
    count: int,
    url: str,
    pages: Pages,
    *,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Fleet]:
    """Yield so many crawlers, ready to begin. They begin with the first page; where they share no work, each has its share of the
    first page's links.
    """
    shares = "SCHEDULER" in WAYS[way] or WAYS[way].get("TBLOOM_MARK") == "done"
    with ExitStack() as stack:
        crawlers = []
        for number in range(count):
            first = pages.first[:1] if shares else pages.first[number::count]
            arguments = {"site": pages.site, "folder": pages.folder, "first": first}
            arguments |= {"shared": "SCHEDULER" in WAYS[way]}
            job = {"settings": {**WAYS[way], **settings, "REDIS_URL": url}, "arguments": arguments}
            command = [sys.executable, "-m", "bench.javadoc", "crawl", json.dumps(job)]
            pipe = subprocess.PIPE
            crawler = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.enter_context(crawler)
            stack.callback(crawler.kill)
            crawlers.append(crawler)
        for crawler in crawlers:
            assert crawler.stdout
            # scrapy-redis-bloomfilter prints, too.
            while (line := crawler.stdout.readline()) != "ready\n":
                assert line, f"{way}: a crawler has ended"
        yield crawlers


def reports(crawlers: Fleet) -> list[dict[str, Any]]:
    """Let the crawlers crawl, and return their reports."""
    for crawler in crawlers:
        assert crawler.stdin
        crawler.stdin.write("go\n")
        crawler.stdin.flush()
    reported = [json.loads(crawler.communicate(timeout=1200)[0]) for crawler in crawlers]
    assert not any(report["errors"] for report in reported), "the log has errors"
    return reported


def seconds_of(reported: Sequence[dict[str, Any]]) -> float:
    """Return the time from the first request until the last page (s)."""
    began = min(report["began"] for report in reported)
    return float(max(report["last"] for report in reported) - began)


def counts_when_idle(server: Server, seconds: float = 20) -> list[float]:
    """Return what an idle server counts in a second: its own timers, and the replica's acknowledgements."""
    before = _counts(server)
    time.sleep(seconds)
    return [(after - begin) / seconds for after, begin in zip(_counts(server), before, strict=True)]


def spent(
    server: Server, idle: Sequence[float], crawlers: Fleet
) -> tuple[list[float], list[dict[str, Any]]]:
    """Return what the server spends on a crawl beyond what it counts when idle, as ``_counts``; and the crawlers' reports."""
    before, at = _counts(server), time.monotonic()
    reported = reports(crawlers)
    elapsed = time.monotonic() - at
    counted = zip(_counts(server), before, idle, strict=True)
    return [after - begin - elapsed * alone for after, begin, alone in counted], reported


def _counts(server: Server) -> list[float]:
    """Return processor time (us), calls, bytes received, bytes of the log, and bytes sent.

    A call is what the server reads at once: a pipeline is one call, and more than 16 KB are several.
    """
    info: dict[str, Any] = server.client.info("everything")
    cpu = 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])
    read = info["total_reads_processed"], info["total_net_input_bytes"]
    return [cpu, *read, info.get("aof_current_size", 0), info["total_net_output_bytes"]]


def _site(pages: Pages) -> Table:
    columns = {"": "", "pages": ",d", "links a page": ".1f"}
    return Table("fleet-site", columns, [["the site", len(pages.reached), mean(pages.links)]])


def main() -> None:
    """Run one crawler, or serve the site."""
    if sys.argv[1] == "site":
        asyncio.run(_serve(Path(sys.argv[2]), sys.argv[3]))
    else:
        crawl(json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
