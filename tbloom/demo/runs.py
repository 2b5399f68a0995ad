"""The three runs of the demo on one filter, and their figures."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import redis

from tbloom.bloom.sync import TimeBloom
from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.demo.fleet import Crawled, Fleet
from tbloom.demo.report import Numbers

if TYPE_CHECKING:
    from typing_extensions import Self

    from tbloom.cli.kit.progress import Reporter
    from tbloom.demo.target import Target

_SLICES = 2
# Lower than the default, so that practically no run misses a page.
_ERROR_RATE = 1e-6
_KEY_SECONDS = 3600
_SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run; its times are the server's (ms)."""

    began: int
    ended: int
    crawled: list[Crawled]
    #: Number of requests for each path; with a live site, for each page.
    hits: Counter[str]
    #: The last line on stderr of each crawler that had logged errors.
    complaints: list[str]

    @property
    def pages(self) -> int:
        """Pages fetched, by the crawlers' count."""
        return sum(len(one.pages) for one in self.crawled)

    @property
    def fetched(self) -> set[str]:
        """The paths of its pages, by the crawlers' count."""
        return {_path_of(page) for one in self.crawled for page in one.pages}

    @property
    def twice(self) -> int:
        """Pages fetched more than once."""
        return sum(count > 1 for count in self.hits.values())

    @property
    def failed(self) -> dict[str, str]:
        """The dead links, with the reasons."""
        return {url: reason for one in self.crawled for url, reason in one.failed.items()}


def _path_of(url: str) -> str:
    """A URL without its site, as the site names its pages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme="", netloc=""))


class Runs:
    """The runs on a filter with a random name; a context manager, which deletes all their keys."""

    def __init__(
        self, reporter: Reporter, redis_url: str, target: Target, crawlers: int, period: int
    ) -> None:
        self._reporter = reporter
        self._redis_url = redis_url
        self._target = target
        self._crawlers = crawlers
        self._period = period
        self._key = f"tbloom-demo:{secrets.token_hex(6)}"
        self._client = redis.Redis.from_url(redis_url)
        self._filter = TimeBloom(
            self._client,
            self._key,
            granularity=f"{period}s",
            slices=_SLICES,
            capacity=target.items,
            error_rate=_ERROR_RATE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(redis.RedisError):  # Redis may have ended
            self._remove_keys()
        self._client.close()

    def make(self, redis_name: str) -> Numbers:
        """Makes the runs. :raises CommandError: where the first run fetches nothing."""
        window = self._filter.config.window
        self._reporter.say(
            f"Window: {_SLICES} slices of {self._period} s; an item of one slice is remembered "
            "until the end of the next"
        )
        start = window.slice_at(self._now()).end
        first = self._crawl("First run", start, "Waiting for a slice to begin")
        if not first.pages:
            reasons = [*first.failed.values(), *first.complaints, "it is not an HTML page"]
            raise CommandError(f"{self._target.start} can't be crawled: {reasons[0]}")
        info = self._filter.info()
        set_bytes = self._set_bytes(info.items)
        second = self._crawl("Second run, inside the window")
        in_time = second.ended < window.expires(window.slice_at(first.began))
        third = self._third(first, second) if in_time else None
        if third is None:
            least = math.ceil((second.ended - first.began) / 1000 / _SLICES * 1.5)
            self._reporter.say(f"Both runs took longer than the window: try --period {least}")
        return Numbers(
            site=self._target.start,
            redis=redis_name,
            period_seconds=self._period,
            slices=_SLICES,
            capacity=self._target.items,
            error_rate=_ERROR_RATE,
            second_run_in_time=in_time,
            filter_items=info.items,
            filter_bytes=info.bytes,
            set_bytes=set_bytes,
            **self._counts(first, second, third),
        )

    def _counts(self, first: Run, second: Run, third: Run | None) -> dict[str, Any]:
        """The figures of the runs, as fields of Numbers."""
        return {
            "pages_on_site": None if self._target.pages is None else len(self._target.pages),
            "fetched_by_crawler": [len(one.pages) for one in first.crawled],
            "fetched_twice": first.twice,
            "missed": self._missed(first),
            "dead_links": len(first.failed),
            "fetched_again_inside_window": second.hits.total(),
            "fetched_after_window": third.pages if third else None,
            "fetched_twice_after_window": third.twice if third else 0,
            "missed_after_window": self._missed(third) if third else None,
            "links": sum(one.links for one in first.crawled),
            "duplicates": sum(one.duplicates for one in first.crawled),
        }

    def _third(self, first: Run, second: Run) -> Run:
        window = self._filter.config.window
        last = second if second.pages else first
        gone = window.expires(window.slice_at(last.ended))
        return self._crawl("Third run, after the window", gone, "Waiting for the window to pass")

    def _crawl(self, name: str, begin: int = 0, waiting: str = "") -> Run:
        """Crawls from the time ``begin`` on (the server's, in ms)."""
        deadline = math.inf

        def check() -> None:
            # After the window, pages are new again, and the crawl would never end.
            if time.monotonic() > deadline:
                raise self._too_long(name)
            self._client.ping()

        def advance(pages: int) -> None:
            check()
            show(pages)

        with Fleet(self._crawlers, self._settings(), check) as fleet:
            if begin:
                self._reporter.wait(waiting, lambda: (begin - self._now()) / 1000)
            if self._target.take_hits:
                self._target.take_hits()
            began = self._now()
            deadline = time.monotonic() + _SLICES * self._period
            text = f"{name}: {self._crawlers} crawler{'s' * (self._crawlers > 1)}"
            with self._reporter.count(text, self._target.max_pages) as show:
                crawled = fleet.crawl(advance)
            ended = self._now()
            complaints = [fleet.complaint(i) for i, one in enumerate(crawled) if one.errors]
        if self._target.take_hits:
            hits = self._target.take_hits()
        else:
            hits = Counter(page for one in crawled for page in one.pages)
        run = Run(began, ended, crawled, hits, complaints)
        self._reporter.say(f"{name}: {run.pages:,} pages in {(ended - began) / 1000:.1f} s")
        for complaint in complaints:
            self._reporter.say(f"  a crawler reports an error: {complaint}")
        for url, reason in run.failed.items():
            if _path_of(url) in (self._target.pages or ()):  # no dead link
                self._reporter.say(f"  {url} can't be fetched: {reason}")
        return run

    def _too_long(self, name: str) -> CommandFailed:
        window, longer = _SLICES * self._period, max(self._target.period, 2 * self._period)
        return CommandFailed(
            f"{name}: not done within the window of {window} s, so its pages are new again: "
            f"try --period {longer}"
        )

    def _settings(self) -> dict[str, Any]:
        """The crawlers' settings; each run has its own queue."""
        config = self._filter.config
        queue = f"{self._key}:{secrets.token_hex(3)}"
        # The speed of a live site is not known; the crawl must end within the window.
        limit = self._period * 1.2 if self._target.pages is None else 0
        return {
            "REDIS_URL": self._redis_url,
            "SCHEDULER_QUEUE_KEY": f"{queue}:requests",
            "TBLOOM_KEY": self._key,
            "TBLOOM_GRANULARITY": config.window.granularity,
            "TBLOOM_SLICES": config.slices,
            "TBLOOM_CAPACITY": config.capacity,
            "TBLOOM_ERROR_RATE": config.error_rate,
            "DEMO_BUSY_KEY": f"{queue}:busy",
            "DEMO_MAX_SECONDS": limit,
            "DEMO_START": self._target.start,
            **self._target.settings,
        }

    def _missed(self, run: Run) -> int | None:
        return None if self._target.pages is None else len(self._target.pages - run.fetched)

    def _now(self) -> int:
        """The server's clock (ms)."""
        seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _set_bytes(self, items: int) -> int:
        """Memory of scrapy-redis' set with this number of fingerprints, measured on a temporary set."""
        key = f"{self._key}:set"
        # All fingerprints have the same size: 40 hex digits.
        fingerprint = partial(sha1, usedforsecurity=False)
        members = [fingerprint(b"%d" % i).hexdigest() for i in range(items)]
        try:
            for start in range(0, items, _SCAN_COUNT):
                self._client.sadd(key, *members[start : start + _SCAN_COUNT])
                self._client.expire(key, _KEY_SECONDS)
            return int(self._client.memory_usage(key, samples=0) or 0)
        finally:
            self._client.delete(key)

    def _remove_keys(self) -> None:
        # The crawlers have made further keys, which only their names show.
        keys = list(self._client.scan_iter(match=f"*{self._key}*", count=_SCAN_COUNT))
        if keys:
            self._client.delete(*keys)
