"""``tbloom demo``: a fleet of crawlers shares a site, and a second run of the same fleet finds nothing new."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from redis import Redis, RedisError

from tbloom.demo.localredis import open_redis
from tbloom.demo.processes import group
from tbloom.demo.site import PAGES, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tbloom.demo.site import Site

_SLICES = 7


class Run(NamedTuple):
    """What a run fetched: how many pages each crawler, and how often each page."""

    by_crawler: Counter[str]
    by_page: Counter[str]
    seconds: float

    @property
    def fetched(self) -> int:
        """Requests of all crawlers."""
        return self.by_page.total()

    @property
    def twice(self) -> int:
        """Pages that were fetched more than once."""
        return sum(times > 1 for times in self.by_page.values())


def run(crawlers: int) -> int:
    """Run the demo. Return the exit code: 0 if the runs fetched what they should, else 1."""
    import scrapy as scrapy  # noqa: PLC0415 - without it, the command says at once what to install

    name = f"tbloom-demo-{secrets.token_hex(6)}"
    with open_redis() as (url, description), serve() as site:
        click.echo(f"Redis: {description}")
        click.echo(f"Site:  {len(PAGES)} pages with {site.links:,} links, on {site.url}/")
        click.echo(f"Fleet: {crawlers} Scrapy processes, each with this one start page\n")
        try:
            runs = [_crawl(site, url, name, crawlers) for _ in range(2)]
        finally:
            with contextlib.suppress(RedisError), Redis.from_url(url) as client:
                for key in client.scan_iter(match=f"*{name}*", count=1000):
                    client.delete(key)
    first, second = runs
    click.echo(_table(runs, crawlers))
    if ({*first.by_page}, first.twice, second.fetched) != ({*PAGES}, 0, 0):
        click.echo("\nNot as promised: the first run fetches each page once, the second none.")
        return 1
    alone = len(runs) * crawlers * len(PAGES)
    click.echo(
        f"\nThe fleet shared the pages: {first.fetched} requests. Crawlers that know nothing of each\n"
        f"other, nor of the run before, send {alone:,}. Pages are remembered for {_SLICES} days."
    )
    return 0


def _crawl(site: Site, url: str, name: str, crawlers: int) -> Run:
    """Let the fleet crawl the site from its start page."""
    site.hits.clear()
    began = time.monotonic()
    shared = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_SLICES": _SLICES, "SITE": site.url}
    # Python imports from the current folder first, which may be a clone of tbloom.
    place, words = Path(sys.executable).parent, [sys.executable, "-m", "tbloom.demo.crawler"]
    with group() as start:
        processes = [
            start([*words, json.dumps({**shared, "USER_AGENT": f"crawler {n + 1}"})], cwd=place)
            for n in range(crawlers)
        ]
        for process in processes:
            process.wait()
    agents, paths = zip(*site.hits, strict=True) if site.hits else ((), ())
    return Run(Counter(agents), Counter(paths), time.monotonic() - began)


def _table(runs: list[Run], crawlers: int) -> str:
    """Return what each crawler fetched in each run."""
    agents = [f"crawler {number + 1}" for number in range(crawlers)]
    rows: list[Sequence[str]] = [
        ("pages fetched", "first run", "second run"),
        *([agent, *(f"{run.by_crawler[agent]}" for run in runs)] for agent in agents),
        ["together", *(f"{run.fetched}" for run in runs)],
        ["of them twice", *(f"{run.twice}" for run in runs)],
        ["seconds", *(f"{run.seconds:.1f}" for run in runs)],
    ]
    return "\n".join(f"{title:<15}{first:>10}{second:>13}" for title, first, second in rows)
