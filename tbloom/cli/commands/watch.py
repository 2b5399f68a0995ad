"""``tbloom watch``: a filter live, with its new items per second."""

from __future__ import annotations

import sys
import time
from contextlib import closing, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import click
import redis
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tbloom.cli.kit import filter_info, filters, formats, interrupts, numbers, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.cli.kit.progress import can_animate
from tbloom.cli.kit.rates import Rates
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

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
    console = output.console()
    shown = Screen(console, empty=empty) if can_animate(console) else Lines()
    rates, info = Rates(_TICKS), None
    with (
        suppress(KeyboardInterrupt),
        interrupts.held_back() as look,
        filters.connect(url) as server,
        closing(shown),
    ):
        while True:
            try:
                # Opened each time: the filter may have been cleared, or got other parameters.
                info = server.filter(name).info(info)
            except _FAILURES as error:
                if info is None:
                    raise
                shown.failed(f"{one_line(error)}; trying again")
            else:
                rates.tick(time.monotonic(), {slice.label: slice.items for slice in info.slices})
                shown.tick(info, rates)
            if once:
                return
            _wait(every, look)


class Lines:
    """A line for each tick: time, items, items per second, memory, error rate."""

    def tick(self, info: FilterInfo, rates: Rates) -> None:
        """Prints the filter's figures."""
        rate = "-" if rates.now is None else f"{rates.now:,.1f}"
        sys.stdout.write(
            f"{_now()}  {info.items:,} items  {rate} items/s  {formats.size(info.bytes)}  "
            f"error rate {formats.rate(info.error_rate)}\n"
        )
        sys.stdout.flush()

    def failed(self, message: str) -> None:
        """Prints the error on stderr."""
        sys.stderr.write(f"{_now()}  tbloom: {message}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Does nothing: each line is complete."""


class Screen:
    """A frame that each tick redraws. The last one stays on the screen."""

    def __init__(self, console: Console, *, empty: bool) -> None:
        self._console, self._empty = console, empty
        self._live = Live(console=console, auto_refresh=False)
        self._frame: list[RenderableType] = []

    def tick(self, info: FilterInfo, rates: Rates) -> None:
        """Shows the filter, with as many of the newest slices as fit on the screen."""
        newest = max(1, self._console.height - _OTHER_LINES)
        table = filter_info.as_table(info, empty=self._empty, newest=newest)
        self._frame = [*_rates(rates, self._console.width), Text(), table]
        self._draw(Text(f"{_now()}  Ctrl-C ends", style="dim"))

    def failed(self, message: str) -> None:
        """Shows the error above the last figures."""
        self._draw(Text(f"{_now()}  {message}", style="red"))

    def close(self) -> None:
        """Restores the terminal."""
        self._live.stop()

    def _draw(self, first: Text) -> None:
        self._live.start()  # does nothing from the second time on
        self._live.update(Group(first, *self._frame), refresh=True)


def _wait(seconds: float, look: Callable[[], None]) -> None:
    """Sleeps until the time is over or Ctrl-C comes."""
    until = time.monotonic() + seconds
    look()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _STEP_SECONDS))
        look()


def _rates(rates: Rates, width: int) -> list[Text]:
    if rates.now is None:
        return [Text("items/s: with the next look")]
    now = Text.assemble(
        (f"{rates.now:,.1f} items/s", "bold"),
        f", {rates.mean:,.1f} over the last {formats.duration(rates.seconds)}",
    )
    return [now, Text(formats.sparkline(rates.each[-width:]))]


def _now() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
