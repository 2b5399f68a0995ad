"""``tbloom watch``: a filter live, with its new items per second."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click
import redis

from tbloom.cli.kit import filter_info, filters, formats, interrupts, numbers, options
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.cli.kit.progress import can_animate
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tbloom.bloom.info import FilterInfo

#: Length of the sparkline in ticks: two minutes by default.
_TICKS = 60
_STEP_SECONDS = 0.1
#: Lines of a frame beside the slices: time, rates, parameters, headings, totals, a few warnings.
_OTHER_LINES = 12
_FAILURES = (redis.RedisError, redis.exceptions.RedisClusterException, TBloomError, CommandError)


@click.command(cls=Command, example="tbloom watch news --every 5")
@options.name
@options.url
@options.all_slices
@click.option(
    "--every",
    type=numbers.pause,
    default="2",
    metavar="SECONDS",
    help="time between two looks (2)",
)
@click.option("--once", is_flag=True, help="look once")
def command(name: str, url: str, every: float, *, empty: bool, once: bool) -> None:
    """Shows a filter live, with its new items per second.

    Ctrl-C is the normal end.
    """
    draws = can_animate(sys.stdout)
    rates, info, frame = Rates(_TICKS), None, ""
    with (
        suppress(KeyboardInterrupt),
        interrupts.held_back() as look,
        filters.connect(url) as server,
    ):
        while True:
            try:
                # Opened each time: the filter may have been cleared, or got other parameters.
                info = server.filter(name).info(info)
            except _FAILURES as error:
                if info is None:
                    raise
                said = f"{one_line(error)}; trying again"
                if draws:
                    _draw(click.style(said, fg="red"), frame)
                else:
                    click.echo(f"{_now()}  tbloom: {said}", err=True)
            else:
                rates.tick(time.monotonic(), {slice.label: slice.items for slice in info.slices})
                if draws:
                    frame = screen(info, rates, empty=empty)
                    _draw(click.style("Ctrl-C ends", dim=True), frame)
                else:
                    click.echo(f"{_now()}  {_line(info, rates)}")
            if once:
                return
            _wait(every, look)


def screen(info: FilterInfo, rates: Rates, *, empty: bool) -> str:
    """The rates, and the filter with as many of the newest slices as fit on the screen."""
    width, height = shutil.get_terminal_size()
    text = filter_info.as_text(info, empty=empty, newest=max(1, height - _OTHER_LINES))
    if rates.now is None:
        return f"items/s: with the next look\n\n{text}"
    now = click.style(f"{rates.now:,.1f} items/s", bold=True)
    mean = f"{rates.mean:,.1f} over the last {formats.duration(rates.seconds)}"
    return f"{now}, {mean}\n{formats.sparkline(rates.each[-width:])}\n\n{text}"


def _draw(first: str, frame: str) -> None:
    """Clears the screen, and prints a frame."""
    click.clear()
    click.echo(f"{_now()}  {first}\n{frame}")


def _line(info: FilterInfo, rates: Rates) -> str:
    """The items, items per second, memory and error rate."""
    rate = "-" if rates.now is None else f"{rates.now:,.1f}"
    memory, error_rate = formats.size(info.bytes), formats.rate(info.error_rate)
    return f"{info.items:,} items  {rate} items/s  {memory}  error rate {error_rate}"


def _wait(seconds: float, look: Callable[[], None]) -> None:
    """Sleeps until the time is over or Ctrl-C comes."""
    until = time.monotonic() + seconds
    look()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _STEP_SECONDS))
        look()


def _now() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"


class Tick(NamedTuple):
    """The items that were added between two looks, and the time between them."""

    items: int
    seconds: float


class Rates:
    """New items per second, from the exact counts of a filter's slices, in the newest ``keep`` ticks."""

    def __init__(self, keep: int) -> None:
        self._ticks: deque[Tick] = deque(maxlen=keep)
        self._at = 0.0
        self._counts: Mapping[str, int] | None = None

    def tick(self, at: float, counts: Mapping[str, int]) -> None:
        """Takes a look: the time (s), and the number of items of each live slice, by label."""
        if self._counts is not None and at > self._at:
            self._ticks.append(Tick(_added(self._counts, counts), at - self._at))
        self._at, self._counts = at, counts

    @property
    def now(self) -> float | None:
        """Items per second in the last tick; None after the first look."""
        return self._ticks[-1].items / self._ticks[-1].seconds if self._ticks else None

    @property
    def mean(self) -> float:
        """Items per second, over all kept ticks."""
        return sum(tick.items for tick in self._ticks) / (self.seconds or 1)

    @property
    def seconds(self) -> float:
        """Total time of the kept ticks."""
        return sum(tick.seconds for tick in self._ticks)

    @property
    def each(self) -> list[float]:
        """The rate of each tick, oldest first."""
        return [tick.items / tick.seconds for tick in self._ticks]


def _added(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Number of items added between two looks.

    A slice that has left the window is ignored. A slice that was cleared counts from 0. An older slice
    that was not in the first look (the window has become longer) counts as unchanged.
    """
    newest = max(before, default="")
    added = 0
    for label, items in now.items():
        known = before.get(label, 0 if label > newest else items)
        added += items - known if items >= known else items
    return added
