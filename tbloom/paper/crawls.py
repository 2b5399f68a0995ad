"""The paper's crawls: one in each slice, by two Scrapy processes on one filter, on short real slices."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tbloom.bloom.sync import TimeBloom
from tbloom.cli.kit.errors import CommandFailed
from tbloom.demo import gazette
from tbloom.demo.site import serve
from tbloom.paper.fleet import Fleet
from tbloom.paper.rates import HASHES

if TYPE_CHECKING:
    import redis

    from tbloom.cli.kit.progress import Reporter
    from tbloom.demo.site import Server
    from tbloom.window import Slice

_CRAWLERS = 2
#: Of a crawl, and so of a slice.
PAGES = 100
#: A slice has 2^BIT bits, as scrapy-redis-bloomfilter has it.
BIT = 12
# A crawl takes a second.
_SHORTEST = 4
_TRIES = 4
_MARGIN_SECONDS = 0.1


class _TooSlow(Exception):
    """A crawl was not over when its slice was."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The crawls of an experiment."""

    #: What a slice stands for.
    noun: str
    slices: int
    crawls: int


HOURS = Plan("hour", slices=2, crawls=4)
DAYS = Plan("day", slices=3, crawls=6)


@dataclass(slots=True)
class Crawls:
    """What the crawls of an experiment fetched."""

    plan: Plan
    period_seconds: int
    #: How many pages each pair of crawls has in common; with itself: how many it fetched.
    overlaps: list[list[int]]
    #: Pages that a crawl fetched twice.
    twice: int
    #: For each crawl, those whose slices are on the server at its end.
    kept: list[list[int]]

    @property
    def broken(self) -> list[str]:
        """A sentence for each figure that is not as promised."""
        names = range(1, len(self.overlaps) + 1)
        noun = self.plan.noun
        found = [
            f"{noun} {one} and {noun} {other} have {self.overlaps[one - 1][other - 1]} pages in common."
            for one in names
            for other in names
            if 0 < other - one < self.plan.slices and self.overlaps[one - 1][other - 1]
        ]
        expected = [list(range(max(1, n - self.plan.slices + 1), n + 1)) for n in names]
        if self.kept != expected:
            found.append(f"The server has the slices of other {noun}s: {self.kept}.")
        if self.twice:
            found.append(f"{self.twice} pages were fetched twice by one crawl.")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        return asdict(self)


def make(client: redis.Redis, url: str, plan: Plan, reporter: Reporter) -> Crawls:
    """Makes the crawls; on a busy machine with longer slices, until each crawl fits into its own."""
    period = _SHORTEST
    for _ in range(_TRIES):
        client.flushall()
        with serve(None) as server, contextlib.suppress(_TooSlow):
            return _Experiment(client, url, plan, server, period).make(reporter)
        reporter.say(f"  a crawl took longer than {period} s: all crawls again, with longer slices")
        period *= 2
    raise CommandFailed(f"a crawl takes longer than {period // 2} s on this machine")


class _Experiment:
    def __init__(
        self, client: redis.Redis, url: str, plan: Plan, server: Server, period: int
    ) -> None:
        self._client = client
        self._plan = plan
        self._period = period
        self._filter = TimeBloom(
            client,
            f"paper-{plan.noun}s",
            granularity=f"{period}s",
            slices=plan.slices,
            capacity=PAGES,
            bits=1 << BIT,
            hashes=HASHES,
        )
        config = self._filter.config
        self._window = config.window
        self._settings = {
            "REDIS_URL": url,
            "TBLOOM_KEY": config.name,
            "TBLOOM_GRANULARITY": config.window.granularity,
            "TBLOOM_SLICES": config.slices,
            "TBLOOM_CAPACITY": config.capacity,
            "TBLOOM_ERROR_RATE": config.error_rate,
            "BLOOMFILTER_BIT": BIT,
            "BLOOMFILTER_HASH_NUMBER": HASHES,
            "SCHEDULER_QUEUE_KEY": "paper:requests",
            "PAPER_URLS": [server.url + path for path in gazette.pages()],
            "PAPER_PAGES": PAGES // _CRAWLERS,
        }

    def make(self, reporter: Reporter) -> Crawls:
        """Makes the crawls. :raises _TooSlow: where one did not end in its slice."""
        plan = self._plan
        pages: list[list[str]] = []
        kept = []
        title = f"{plan.crawls} crawls by {_CRAWLERS} processes, one each {plan.noun} of {self._period} s"
        with (
            reporter.count(title, plan.crawls * PAGES) as advance,
            Fleet(_CRAWLERS, self._settings, self._client.ping) as fleet,
        ):
            slices = [self._window.slice_at(self._now())]
            for number in range(plan.crawls):
                slices.append(self._window.slice_at(slices[-1].end))
                self._wait(slices[-1])
                done = number * PAGES
                pages.append(fleet.crawl_once(lambda more, done=done: advance(done + more)))  # type: ignore[misc]
                kept.append(self._kept(slices))
                if self._now() >= slices[-1].end:
                    raise _TooSlow
        overlaps = [[len({*one} & {*other}) for other in pages] for one in pages]
        twice = sum(len(one) - len({*one}) for one in pages)
        return Crawls(plan, self._period, overlaps, twice, kept)

    def _wait(self, slice: Slice) -> None:
        """Waits until the slice begins."""
        if self._now() >= slice.end:
            raise _TooSlow
        while (left := slice.start / 1000 + _MARGIN_SECONDS - self._now() / 1000) > 0:
            time.sleep(left)

    def _kept(self, slices: list[Slice]) -> list[int]:
        """The numbers of the crawls whose slices are on the server; the first slice had no crawl."""
        key = self._filter.config.keys.slice
        return [n for n, slice in enumerate(slices) if self._client.exists(key(slice.label))]

    def _now(self) -> int:
        """The server's clock (ms)."""
        seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000
