"""``tbloom watch``: a filter live, with the items that it takes per second."""

from __future__ import annotations

import argparse
import math
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import redis
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tbloom.cli.kit import filters, interrupts, show, words
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.cli.kit.progress import can_animate
from tbloom.cli.kit.rates import Rates
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from tbloom.bloom.info import FilterInfo

#: The sparkline has so many ticks: two minutes as they come.
_TICKS = 60
_STEP_SECONDS = 0.1
#: Lines of a frame that are not slices: time, rates, parameters, headings, sums, a few warnings.
_OTHER_LINES = 12
_LOST = (redis.RedisError, redis.RedisClusterException, TBloomError, CommandError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME, --every, --once."""
    filters.add_arguments(parser)
    parser.add_argument(
        "--every", type=_seconds, default=2.0, metavar="SECONDS", help="how often to look (2)"
    )
    parser.add_argument("--once", action="store_true", help="look once")


def run(arguments: argparse.Namespace) -> int:
    """Shows the filter until Ctrl-C, which is how watching ends: that is no error."""
    console = show.console()
    shown = Screen(console) if can_animate(console) else Lines()
    try:
        with interrupts.held_back() as look, filters.connect(arguments.url) as client, shown:
            _watch(arguments, client, shown, look)
    except KeyboardInterrupt:
        pass
    return 0


class Lines:
    """A line for each tick: time, items, items per second, memory, error rate."""

    def __enter__(self) -> None:
        """Nothing is to be begun."""

    def __exit__(self, *_: object) -> None:
        """Nor ended."""

    def tick(self, info: FilterInfo, rates: Rates) -> None:
        """Prints what the filter holds."""
        rate = "-" if rates.now is None else f"{rates.now:,.1f}"
        sys.stdout.write(
            f"{_now()}  {info.items:,} items  {rate} items/s  {words.size(info.bytes)}  "
            f"error rate {words.rate(info.error_rate)}\n"
        )
        sys.stdout.flush()

    def lost(self, message: str) -> None:
        """Says, beside the figures, that there are none."""
        sys.stderr.write(f"{_now()}  tbloom: {message}\n")
        sys.stderr.flush()


class Screen:
    """A frame that each tick draws anew. The last one stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._frame: list[RenderableType] = []

    def __enter__(self) -> None:
        """It begins with the first frame: an error before that stands alone."""

    def __exit__(self, *_: object) -> None:
        """Gives the terminal back."""
        self._live.stop()

    def tick(self, info: FilterInfo, rates: Rates) -> None:
        """Shows what the filter holds; of many slices, as many of the newest as there is room for."""
        newest = max(1, self._console.height - _OTHER_LINES)
        self._frame = [_rates(rates), Text(), show.as_table(info, newest)]
        self._draw(Text(f"{_now()}  Ctrl-C ends", style="dim"))

    def lost(self, message: str) -> None:
        """Says so above what was known last."""
        self._draw(Text(f"{_now()}  {message}", style="red"))

    def _draw(self, first: Text) -> None:
        self._live.start()  # once
        # What matters most is at the top: a terminal that is too low cuts off the end.
        self._live.update(Group(first, *self._frame), refresh=True)


def _watch(
    arguments: argparse.Namespace, client: Any, shown: Screen | Lines, look: Callable[[], None]
) -> None:
    rates, info = Rates(_TICKS), None
    while True:
        try:
            # Opened anew each time: somebody may have changed its parameters, or cleared it.
            seen = filters.open_stored(arguments.url, client, arguments.name)
            info = seen.info(info)
        except _LOST as error:
            if info is None:
                raise
            shown.lost(f"{one_line(error)}; trying again")
        else:
            rates.tick(time.monotonic(), {slice.label: slice.items for slice in info.slices})
            shown.tick(info, rates)
        if arguments.once:
            return
        _wait(arguments.every, look)


def _wait(seconds: float, look: Callable[[], None]) -> None:
    """Waits, and ends at once when Ctrl-C comes."""
    until = time.monotonic() + seconds
    look()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _STEP_SECONDS))
        look()


def _rates(rates: Rates) -> Text:
    if rates.now is None:
        return Text("items/s: from the next look on")
    line = words.sparkline(rates.each)
    return Text.assemble(
        (f"{rates.now:,.1f} items/s", "bold"),
        f"  {line}  {rates.mean:,.1f} over the last {words.duration(rates.seconds)}",
    )


def _now() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds <= 86_400:  # noqa: PLR2004 - a day
        return seconds
    raise argparse.ArgumentTypeError(f"expected seconds, such as 2 or 0.5, got {text!r}")
