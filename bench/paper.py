"""The experiments of the paper behind tbloom: crawls within and after a window, several crawlers at one URL, rates, and memory.

A process of its crawls is ``python -m bench.paper SETTINGS``, Scrapy settings as a JSON object. For each line on stdin it crawls
once, and prints the URLs of the pages that it has fetched as JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import redis
from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from bench.contest import fingerprints
from bench.serving import Server
from bench.tables import Table, amount
from tbloom import TimeBloom
from tbloom.bloom import sizing
from tbloom.bloom.config import configure
from tbloom.engine.server import server_time

#: The paper's number of hashes.
HASHES = 6
#: Processes of a crawl. The pages of the site, and those of a crawl, which fill a slice.
CRAWLERS, SITE_PAGES, PAGES = 2, 300, 100
#: A slice has 2^BIT bits, as scrapy-redis-bloomfilter has it.
BIT = 12
#: The slices of the window whose rate is measured.
RATE_SLICES = 3
#: Processes that add the same URLs, the bitmaps of the paper's code, and the bits of each, an exponent of two.
RACERS, RACE_KEYS, RACE_BIT = 3, ("race:0", "race:1", "race:2"), 20
#: The paper's largest crawl has 6 * 10^8 requests.
SIZES = (10**5, 10**6, 10**7, 10**8, 6 * 10**8, 10**9)
MEMORY_SLICES = 7
_BATCH = 10_000


def measure(
    server: Server, *, in_set: int = 10**7, asked: int = 1_000_000, raced: int = 3000
) -> list[Table]:
    """Make all experiments: with items of the largest set, items that are asked for, and URLs of the race."""
    hours = crawl(server, "hour", slices=2, crawls=4)
    days = crawl(server, "day", slices=3, crawls=6)
    return [
        common(hours),
        common(days),
        race(server.url, raced),
        rates(server.client, asked),
        memory(server, in_set),
    ]


class Plan(NamedTuple):
    """Crawls, one in each slice, and what they had in common."""

    noun: str
    slices: int
    #: Seconds of a slice.
    period: int
    #: How many pages each pair of crawls has in common.
    overlaps: list[list[int]]
    #: For each crawl, those whose slices are on the server at its end.
    kept: list[list[int]]


def crawl(server: Server, noun: str, slices: int, crawls: int, period: int = 4) -> Plan:
    """Make the crawls. If one takes longer than its slice, make all of them again with longer slices."""
    server.empty()
    pages, kept, in_time = _crawls(server, slices, crawls, period)
    if not in_time:
        print(f"a crawl took longer than {period} s: all again, with longer slices")
        return crawl(server, noun, slices, crawls, 2 * period)
    overlaps = [[len({*one} & {*other}) for other in pages] for one in pages]
    return Plan(noun, slices, period, overlaps, kept)


def common(plan: Plan) -> Table:
    """Return a table of the pages that crawls have in common, and of the slices that are on the server at the end of each."""
    names = [f"{plan.noun} {number}" for number in range(1, len(plan.kept) + 1)]
    columns = {"pages in common": "", **dict.fromkeys(names, "d"), "slices on the server": ""}
    rows = [
        [name, *overlaps, ", ".join(names[number - 1] for number in kept)]
        for name, overlaps, kept in zip(names, plan.overlaps, plan.kept, strict=True)
    ]
    return Table(f"paper-{plan.noun}s", columns, rows)


def _crawls(
    server: Server, slices: int, crawls: int, period: int
) -> tuple[list[list[str]], list[list[int]], bool]:
    """Return the pages of each crawl, the crawls whose slices are kept, and whether each crawl ended within its slice."""
    sizes: dict[str, Any] = {"capacity": PAGES, "bits": 1 << BIT, "hashes": HASHES}
    seen = TimeBloom(server.client, "paper", granularity=f"{period}s", slices=slices, **sizes)
    config = seen.config

    def now() -> int:
        return seen.run(server_time(config))

    settings = {
        "REDIS_URL": server.url,
        "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter",
        "TBLOOM_KEY": config.name,
        "TBLOOM_GRANULARITY": config.window.granularity,
        "TBLOOM_SLICES": slices,
        "TBLOOM_CAPACITY": PAGES,
        "TBLOOM_ERROR_RATE": config.error_rate,
        "BLOOMFILTER_BIT": BIT,
        "BLOOMFILTER_HASH_NUMBER": HASHES,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "bench.paper", json.dumps(settings)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crawlers = [subprocess.Popen(command, text=True, **pipes) for _ in range(CRAWLERS)]
    pages: list[list[str]] = []
    kept, in_time = [], True
    try:
        _answers(crawlers)  # they are ready
        past = [config.window.slice_at(now())]
        for _ in range(crawls):
            past.append(config.window.slice_at(past[-1].end))
            time.sleep(max(0, past[-1].start + 100 - now()) / 1000)
            for crawler in crawlers:
                print("go", file=crawler.stdin, flush=True)
            pages.append(_answers(crawlers))
            on_server = [bool(server.client.exists(config.keys.slice(s.label))) for s in past]
            kept.append([n for n, exists in enumerate(on_server) if exists])  # 0 had no crawl
            in_time = in_time and now() < past[-1].end
    finally:
        for crawler in crawlers:
            crawler.kill()
            crawler.communicate()
    return pages, kept, in_time


def _answers(crawlers: list[subprocess.Popen[str]]) -> list[str]:
    """Return the pages that the crawlers have fetched, once all have."""
    lines = [crawler.stdout.readline() for crawler in crawlers if crawler.stdout]
    return [page for line in lines for page in json.loads(line)]


def add(client: redis.Redis, fingerprint: str) -> bool:
    """Add as the paper does: a bitmap for each slice, and a command for each bit. Return whether it was new."""
    if exists(client, fingerprint):
        return False
    insert(client, fingerprint)
    return True


def exists(client: redis.Redis, fingerprint: str) -> bool:
    """Return whether a slice has all bits of the fingerprint."""
    slices = ([client.getbit(key, bit) for bit in _bits(fingerprint)] for key in RACE_KEYS)
    return any(map(all, slices))


def insert(client: redis.Redis, fingerprint: str) -> None:
    """Set its bits in the current slice."""
    for bit in _bits(fingerprint):
        client.setbit(RACE_KEYS[-1], bit, 1)


def _bits(fingerprint: str) -> Iterator[int]:
    for seed in range(HASHES):
        value = 0
        for character in fingerprint:
            value += seed * value + ord(character)
        yield value & (1 << RACE_BIT) - 1


def race(url: str, urls: int) -> Table:
    """Return how often the answer was "new" with the paper's code, and with tbloom."""
    rows: list[list[Any]] = []
    with ProcessPoolExecutor(RACERS, multiprocessing.get_context("spawn")) as pool:
        for name in ("the paper's code", "`TimeBloom.add`"):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            runs = pool.map(_race, [url] * RACERS, [urls] * RACERS, [name] * RACERS)
            new = sum(runs)
            rows.append([name, urls, new, new - urls])
    return Table(
        "paper-raced", {"": "", "URLs": ",d", 'answers "new"': ",d", "too many": ",d"}, rows
    )


def _race(url: str, urls: int, name: str) -> int:
    """Add the URLs in one process, once all processes are ready. Return how often the answer was "new"."""
    with redis.Redis.from_url(url) as client:
        seen = TimeBloom(client, "race", granularity="m", slices=len(RACE_KEYS))
        way = seen.add if name == "`TimeBloom.add`" else partial(add, client)
        items = fingerprints("race", urls)
        client.incr("race:ready")
        while int(client.get("race:ready") or 0) < RACERS:
            time.sleep(0.001)
        return sum(map(way, items))


def rates(client: redis.Redis, asked: int) -> Table:
    """Return the rates of an overfilled window, and of a window of the daily crawls."""
    windows = (
        _window(client, 100_000, 845_000, asked),
        _window(client, PAGES, 1 << BIT, asked),
    )
    rows = [[name, *(window[name] for window in windows)] for name in ("measured", "any", "all")]
    return Table("paper-rates", {"": "", "overfilled": ".3g", "the daily crawls'": ".3g"}, rows)


def _window(client: redis.Redis, items: int, bits: int, asked: int) -> dict[str, Any]:
    """Fill the slices of a window. Return the share of items that it calls seen though they were never added."""
    client.flushall()
    bits = sizing.whole_blocks(bits, HASHES)
    # Any window keeps such a rate, so this promise does not change its size.
    sizes: dict[str, Any] = {
        "capacity": items,
        "bits": bits,
        "hashes": HASHES,
        "slices": RATE_SLICES,
    }
    sizes["error_rate"] = 0.5
    # Slices of a month, so that none ends while it is filled.
    seen = TimeBloom(client, "paper", granularity="m", grow=False, **sizes)
    for slice in seen.info().slices:
        seen.import_many(fingerprints(f"item of {slice.label}", items), slice.label)
    called_seen = sum(seen.contains_many(fingerprints("never added", asked)))
    rate = sizing.rate_at(items, bits, HASHES)
    # An item is seen if any slice has it. The paper's formula is that of an item that all slices have.
    computed = {"any": sizing.window_rate([rate] * RATE_SLICES), "all": rate**RATE_SLICES}
    return {**computed, "measured": called_seen / asked}


def memory(server: Server, most: int) -> Table:
    """Measure sets of up to ``most`` items. Compute larger sets, and windows."""
    server.empty()
    empty, done, per_item = server.bytes_of_data(), 0, 0.0
    rows: list[list[Any]] = []
    for items in SIZES:
        while done < min(items, most):
            server.client.sadd("set", *fingerprints(f"{done}", _BATCH))
            done += _BATCH
        if items <= most:
            per_item = (server.bytes_of_data() - empty) / items
        of_set = items * per_item
        config = configure("paper", slices=MEMORY_SLICES, capacity=-(-items // MEMORY_SLICES))
        key = sizing.allocated(sizing.key_bytes(config.shard_bits))
        window = MEMORY_SLICES * config.shards * key
        note = "measured" if items <= most else "computed"
        sizes = (amount(size, 1024) for size in (of_set, window))
        rows.append([items, note, *sizes, of_set / window])
    server.empty()
    columns = {"items": ",d", "": "", "set": "", "window": "", "set / window": ".0f"}
    return Table("paper-memory", columns, rows)


class ListSpider(Spider):
    """Request pages in random order until its share of a crawl's pages was new."""

    name = "paper"

    async def start(self) -> AsyncIterator[Any]:
        """Yield the requests of each crawl."""
        urls = [f"data:,page-{n}" for n in range(SITE_PAGES)]  # they need no web server
        print("[]", flush=True)  # ready
        while await asyncio.to_thread(sys.stdin.readline):
            self.fetched, before = list[str](), self._enqueued()
            for url in random.sample(urls, len(urls)):
                # The scheduler has answered for each request before the next one is asked for.
                if self._enqueued() - before == PAGES // CRAWLERS:
                    break
                yield Request(url)
            while len(self.fetched) < self._enqueued() - before:  # noqa: ASYNC110 - nothing to wait for
                await asyncio.sleep(0.01)
            print(json.dumps(self.fetched), flush=True)

    def parse(self, response: Response, **_: Any) -> None:
        """Note the page."""
        self.fetched.append(response.url)

    def _enqueued(self) -> int:
        assert self.crawler.stats
        return int(self.crawler.stats.get_value("scheduler/enqueued", 0))


if __name__ == "__main__":
    process = CrawlerProcess(json.loads(sys.argv[1]))
    process.crawl(ListSpider)
    process.start()
