"""The paper's crawls: one in each slice, by two Scrapy processes on one filter, on short real slices."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from bench.paper.rates import HASHES
from bench.serving import Server
from tbloom import TimeBloom

CRAWLERS = 2
#: Of the site, and of a crawl, and so of a slice.
SITE_PAGES, PAGES = 300, 100
#: A slice has 2^BIT bits, as scrapy-redis-bloomfilter has it.
BIT = 12
#: Lengths of a slice (s): a crawl takes a second, on a busy machine more.
PERIODS = 4, 8, 16, 32


class _TooSlow(Exception):
    """A crawl was not over when its slice was."""


def measure(server: Server, noun: str, slices: int, crawls: int) -> dict[str, Any]:
    """Makes the crawls; on a busy machine with longer slices, until each crawl fits into its own.

    ``overlaps``: how many pages each pair of crawls has in common. ``kept``: for each crawl, those whose slices are on the
    server at its end.
    """
    for period in PERIODS:
        server.empty()
        try:
            pages, kept = _crawls(server, slices, crawls, period)
        except _TooSlow:
            print(f"a crawl took longer than {period} s: all again, with longer slices")
            continue
        overlaps = [[len({*one} & {*other}) for other in pages] for one in pages]
        twice = sum(len(one) - len({*one}) for one in pages)
        about = {"noun": noun, "slices": slices, "period": period}
        return {**about, "overlaps": overlaps, "twice": twice, "kept": kept}
    sys.exit(f"a crawl takes longer than {PERIODS[-1]} s on this machine")


def _crawls(
    server: Server, slices: int, crawls: int, period: int
) -> tuple[list[list[str]], list[list[int]]]:
    sizes: dict[str, Any] = {"capacity": PAGES, "bits": 1 << BIT, "hashes": HASHES}
    seen = TimeBloom(server.client, "paper", granularity=f"{period}s", slices=slices, **sizes)
    config = seen.config
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
        "PAPER_PAGES": PAGES // CRAWLERS,
        # Scrapy fetches these without a web server.
        "PAPER_URLS": [f"data:,page-{n}" for n in range(SITE_PAGES)],
    }
    command = [sys.executable, "-m", "bench.paper.crawler", json.dumps(settings)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crawlers = [subprocess.Popen(command, text=True, **pipes) for _ in range(CRAWLERS)]
    pages: list[list[str]] = []
    kept = []
    try:
        _answers(crawlers)  # they are ready
        past = [config.window.slice_at(_now(server))]
        for _ in range(crawls):
            past.append(config.window.slice_at(past[-1].end))
            time.sleep(max(0, past[-1].start + 100 - _now(server)) / 1000)
            for crawler in crawlers:
                print("go", file=crawler.stdin, flush=True)
            pages.append(_answers(crawlers))
            on_server = [bool(server.client.exists(config.keys.slice(s.label))) for s in past]
            kept.append([n for n, exists in enumerate(on_server) if exists])  # 0 had no crawl
            if _now(server) >= past[-1].end:
                raise _TooSlow
    finally:
        for crawler in crawlers:
            crawler.kill()
            crawler.communicate()
    return pages, kept


def _answers(crawlers: list[subprocess.Popen[str]]) -> list[str]:
    """The pages that all of them have fetched."""
    lines = [crawler.stdout.readline() for crawler in crawlers if crawler.stdout]
    return [page for line in lines for page in json.loads(line)]


def _now(server: Server) -> int:
    """The server's clock (ms)."""
    seconds, micros = server.client.time()
    return int(seconds) * 1000 + int(micros) // 1000
