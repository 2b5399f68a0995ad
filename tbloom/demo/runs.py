"""The three crawls of the demo with one filter, and their figures."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import redis

from tbloom.bloom.claims.calls import Claim
from tbloom.bloom.sync import TimeBloom
from tbloom.cli.kit import progress
from tbloom.cli.kit.errors import CommandFailed
from tbloom.cli.kit.formats import counted
from tbloom.demo.fleet import fleet
from tbloom.engine.server import memory, server_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tbloom.demo.site import Hit, Survey

_SLICES = 2
# Lower than the default, so that practically no run misses a page.
_ERROR_RATE = 1e-6
_SCAN_COUNT = 1000
_POLL_SECONDS = 0.05
_MIN_ITEMS, _MIN_PERIOD = 1000, 8
# What a crawler takes on a slow machine to start, for a page, and for a link (s).
_SECONDS, _SECONDS_PER_PAGE, _SECONDS_PER_LINK = 1, 0.01, 0.0014


def default_period(site: Survey, crawlers: int) -> int:
    """Return the length of a slice (s), such that the first and the second run fit into two slices."""
    work = len(site.pages) * _SECONDS_PER_PAGE + site.links * _SECONDS_PER_LINK
    at_once = min(crawlers, os.cpu_count() or 1)
    return max(_MIN_PERIOD, math.ceil(work / at_once) + _SECONDS)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. Its times are the server's (ms)."""

    began: int
    ended: int
    #: The stats of each crawler.
    stats: list[dict[str, Any]]
    #: The requests for pages.
    hits: list[Hit]
    #: The paths of dead links.
    dead: set[str]

    def total(self, stat: str) -> int:
        """Return the sum of a stat over all crawlers."""
        return sum(stats.get(stat, 0) for stats in self.stats)


class Runs:
    """Runs on a filter with a random name: a context manager, which at its end deletes all keys of the filter."""

    def __init__(
        self, say: Callable[[str], None], redis_url: str, site: Survey, crawlers: int, period: int
    ) -> None:
        self._say = say
        self._redis_url = redis_url
        self._site = site
        self._period = period
        #: The User-Agent of each crawler, which tells the site who asks.
        self._agents = [f"tbloom-demo/{number + 1}" for number in range(crawlers)]
        self._key = f"tbloom-demo:{secrets.token_hex(6)}"
        self._client = redis.Redis.from_url(redis_url)
        self._filter = TimeBloom(
            self._client,
            self._key,
            granularity=f"{period}s",
            slices=_SLICES,
            capacity=max(_MIN_ITEMS, site.targets),
            error_rate=_ERROR_RATE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(redis.RedisError):  # the server may be gone
            keys = list(self._client.scan_iter(match=f"*{self._key}*", count=_SCAN_COUNT))
            if keys:
                self._client.delete(*keys)
        self._client.close()

    def crawl_three_times(self) -> dict[str, Any]:
        """Make the runs, and return their figures."""
        window = self._filter.config.window
        self._say(
            f"Window: {_SLICES} slices of {self._period} s; an item of one slice is remembered "
            "until the end of the next"
        )
        start = window.slice_at(self._now()).end
        # The page that was found last: no other page is reached only through it.
        self._site.server.failing = failing = self._site.pages[-1]
        first = self._crawl("First run", start, "Waiting for a slice to begin")
        self._site.server.failing = ""
        info = self._filter.info()
        set_bytes = self._set_bytes(info.items)
        second = self._crawl("Second run, inside the window")
        last = second if second.hits else first
        gone = window.expires(window.slice_at(last.ended))
        third = self._crawl("Third run, after the window", gone, "Waiting for the window to pass")
        return {
            "site": self._site.server.url + self._site.pages[0],
            "period_seconds": self._period,
            "slices": _SLICES,
            "capacity": self._filter.config.capacity,
            "error_rate": _ERROR_RATE,
            "pages_on_site": len(self._site.pages),
            "fetched_by_crawler": [
                sum(hit.agent == agent and hit.path != failing for hit in first.hits)
                for agent in self._agents
            ],
            "fetched_twice": sum(
                n > 1
                for n in Counter(hit.path for hit in first.hits if hit.path != failing).values()
            ),
            "failed": len({hit.path for hit in first.hits if hit.status >= HTTPStatus.BAD_REQUEST}),
            "missed": self._missed(first),
            "dead_links": len(first.dead),
            "fetched_again_inside_window": len(second.hits),
            "second_run_in_time": second.ended < window.expires(window.slice_at(first.began)),
            "fetched_after_window": len(third.hits),
            "missed_after_window": self._missed(third),
            "links": sum(first.total(f"tbloom/{answer.value}") for answer in Claim),
            "duplicates": first.total("dupefilter/filtered"),
            "filter_items": info.items,
            "filter_bytes": info.bytes,
            "set_bytes": set_bytes,
        }

    def _crawl(self, name: str, begin: int = 0, waiting: str = "") -> Run:
        """Wait until the time ``begin`` (the server's, in ms), and crawl."""
        if begin:
            self._say(f"{waiting}: {max(0, begin - self._now()) / 1000:.0f} s")
            while (left := begin - self._now()) > 0:
                time.sleep(left / 1000)
        pages, hits = {*self._site.pages}, self._site.server.hits
        hits.clear()
        began = self._now()
        deadline = time.monotonic() + _SLICES * self._period
        self._say(f"{name}: {counted(len(self._agents), 'crawler')} ...")
        with (
            fleet(self._settings()) as crawlers,
            progress.bar("requests", 0) as advance,
        ):
            shown = 0
            while any(crawler.process.poll() is None for crawler in crawlers):
                # Pages that leave the window are new again, so the crawl would not end.
                if time.monotonic() > deadline:
                    raise CommandFailed(
                        f"{name}: not done within the window of {_SLICES * self._period} s, so its "
                        f"pages are new again: try --period {2 * self._period}"
                    )
                time.sleep(_POLL_SECONDS)
                shown += (more := len(hits) - shown)
                advance(more)
            stats = [crawler.stats() for crawler in crawlers]
        asked = [hit for hit in hits if hit.path in pages]
        fetched = sum(hit.status == HTTPStatus.OK for hit in asked)
        dead = {hit.path for hit in hits if hit.status == HTTPStatus.NOT_FOUND}
        ended = self._now()
        self._say(f"{name}: {counted(fetched, 'page')} fetched in {(ended - began) / 1000:.1f} s")
        return Run(began, ended, stats, asked, dead)

    def _settings(self) -> list[dict[str, Any]]:
        """Return the settings of each crawler."""
        config, pages = self._filter.config, self._site.pages
        shared = {
            "REDIS_URL": self._redis_url,
            "TBLOOM_KEY": self._key,
            "TBLOOM_GRANULARITY": config.window.granularity,
            "TBLOOM_SLICES": config.slices,
            "TBLOOM_CAPACITY": config.capacity,
            "TBLOOM_ERROR_RATE": config.error_rate,
            "DEMO_SITE": self._site.server.url,
            # One page is enough for all crawlers, because they share what it leads to.
            "DEMO_START": self._site.server.url + pages[0],
        }
        return [{**shared, "USER_AGENT": agent} for agent in self._agents]

    def _missed(self, run: Run) -> int:
        return len({*self._site.pages} - {hit.path for hit in run.hits})

    def _now(self) -> int:
        """Return the server's time (ms)."""
        return self._filter.run(server_time(self._filter.config))

    def _set_bytes(self, items: int) -> int | None:
        """Return the memory of scrapy-redis' set with this number of fingerprints, measured on a temporary set.

        Return None if the server refuses to tell.
        """
        if not items:
            return 0  # Redis keeps no empty set
        key = f"{self._key}:set"
        self._client.sadd(key, *(f"{i:040x}" for i in range(items)))  # as long as fingerprints
        [size] = self._filter.run(memory([key], []))
        self._client.delete(key)
        return size
