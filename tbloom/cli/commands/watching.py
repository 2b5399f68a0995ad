"""``tbloom metrics``, which serves metrics to Prometheus, and ``tbloom report``, which writes an HTML page."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

import click

from tbloom.bloom.info import FilterInfo
from tbloom.bloom.sizing import slice_rate
from tbloom.cli.commands.listing import KEPT, advice, window_text
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.exact import ExactInfo
from tbloom.version import __version__

PORT, EVERY = 9185, 5.0

#: Longer tables of slices are folded.
_MAX_ROWS = 31
#: Of more bytes an item than that, most are what an empty filter takes: they say nothing of what an item costs.
_MOST_AN_ITEM = 100
#: The steps of an axis, at most; and how many times as high as the highest bar a line may be.
_STEPS, _MOST_ABOVE = 4, 10
_KB = 1024
_MOST_OF_A_YEAR = timedelta(days=300)


@click.command(cls=Command, extra="metrics", example="tbloom metrics news --port 9185")
@options.names(required=True)
@options.server
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, help=f"0: any free port ({PORT})"
)
@click.option("--host", default="127.0.0.1", help="to listen at (127.0.0.1, this machine)")
@click.option(
    "--every",
    type=click.FloatRange(0, 86_400),
    default=EVERY,
    metavar="SECONDS",
    help=f"least time between two requests to Redis ({EVERY:g})",
)
def metrics(names: tuple[str, ...], server: Server, port: int, host: str, every: float) -> None:
    """Serve the metrics of filters, for Prometheus.

    A filter that does not exist yet, or no longer, has the metric tbloom_filter_up = 0.
    """
    import prometheus_client as prometheus  # noqa: PLC0415 - the help does without

    from tbloom.metrics import FilterCollector  # noqa: PLC0415 - the same

    registry = prometheus.CollectorRegistry()
    # The parameters are read at each scrape, because they may change.
    registry.register(FilterCollector.reading(lambda: server.infos(names), names, every))
    try:
        served, thread = prometheus.start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--host {host} --port {port}: {why}") from None
    # The collector logs when an outage begins and ends.
    logging.basicConfig(format="tbloom: %(message)s")
    logging.getLogger("tbloom").setLevel(logging.INFO)
    with suppress(KeyboardInterrupt):
        output.say(f"Serving http://{host}:{served.server_port}/metrics until Ctrl-C")
        thread.join()
    served.shutdown()
    served.server_close()


@click.command(cls=Command, extra="cli", example="tbloom report news images -o report.html")
@options.names()
@options.server
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(),
    default="report.html",
    help="where to write it; -: standard output (report.html)",
)
def report(names: tuple[str, ...], server: Server, file: str) -> int:
    """Write an HTML page about filters.

    Without names, about all filters with slices. Exit code 1: one of them can't be read.
    """
    answers = server.infos(names or server.names(filters.WITH_SLICES))
    found, code = output.readable(
        (name, server.exact_filter_error(name) if isinstance(info, ExactInfo) else info)
        for name, info in answers
    )
    infos = [info for info in found if isinstance(info, FilterInfo)]
    if code and not infos:
        return code
    if not infos:
        raise CommandError(f"no filters on {server.place}")
    page = report_page(infos, server.place)
    with streams.writing(file) as opened:
        opened.write(page)
    if file != "-":
        output.say(f"{file}: {', '.join(info.name for info in infos)}")
    return code


def report_page(filters: list[FilterInfo], server: str) -> bytes:
    """Return an HTML page about filters of this server."""
    return output.page(
        "report.html",
        filters=filters,
        server=server,
        made=datetime.now(UTC),
        version=__version__,
        advice=advice,
        charts=charts,
        dates=dates,
        window=formats.window,
        window_text=window_text,
        max_rows=_MAX_ROWS,
        most_an_item=_MOST_AN_ITEM,
    )


class Chart(NamedTuple):
    """A bar chart with a value of each slice, oldest first, and perhaps a line to compare them with."""

    title: str
    values: list[float]
    #: The formats of a value and of a tick on the axis.
    written: Callable[[float], str]
    tick: Callable[[float], str]
    line_name: str = ""
    line: float | None = None
    #: Ticks are multiples of it, if it is given.
    unit: int | None = None

    @property
    def is_line_shown(self) -> bool:
        """Whether the line is drawn. Bars of less than a tenth of its height could not be seen."""
        highest = max(self.values)
        return self.line is not None and (not highest or self.line <= _MOST_ABOVE * highest)

    @property
    def ticks(self) -> list[float]:
        """Round numbers from 0 to above the highest bar and the line, at most five."""
        highest = max(*self.values, self.line or 0) if self.is_line_shown else max(self.values)
        if not highest:
            return [0]
        if self.unit == _KB:
            step = 2.0 ** math.ceil(math.log2(highest / _STEPS))
        else:
            power = 10.0 ** math.floor(math.log10(highest / _STEPS))
            step = next(power * n for n in (1, 2, 5, 10) if highest <= _STEPS * power * n)
        step = max(step, self.unit or 0)
        return [n * step for n in range(math.ceil(highest / step) + 1)]

    def over(self, value: float) -> float:
        """Return by how much a bar is above the line; 0 unless it is clearly above."""
        line = value if self.line is None else self.line
        return value - line if value > KEPT * line else 0


def charts(info: FilterInfo) -> list[Chart]:
    """Return the charts of items, error rate, fill ratio and memory, if it is known, of each slice."""
    slices, capacity = info.slices, info.capacity
    share = slice_rate(info.promised_error_rate, len(slices))
    full = -math.expm1(-info.hashes * capacity / info.bits) if capacity else None
    rates, fills = [s.error_rate for s in slices], [s.fill_ratio for s in slices]
    sizes: list[float] = [] if info.bytes is None else [s.bytes or 0 for s in slices]
    made_for = info.bits / 8 if capacity else None
    return [
        Chart(
            "Items",
            [s.items for s in slices],
            "{:,}".format,
            formats.short,
            "capacity",
            capacity,
            1,
        ),
        Chart("Error rate", rates, formats.rate, formats.rate, "a slice's share", share),
        Chart(
            "Fill ratio",
            fills,
            _percent,
            _percent,
            "at capacity",
            full,
        ),
        *(
            [Chart("Memory", sizes, formats.size, _tick_of_bytes, "made for", made_for, _KB)]
            if sizes
            else []
        ),
    ]


def dates(info: FilterInfo) -> list[str]:
    """Return when each slice begins, as short as the window allows; the slices' labels without a window."""
    starts = [slice.start for slice in info.slices if slice.start]
    if not starts:
        return [slice.label for slice in info.slices]
    form = "%d %b" if all(at.time() == time.min for at in starts) else "%d %b %H:%M"
    if starts[-1] - starts[0] > _MOST_OF_A_YEAR:
        form = "%b %Y"
    return [at.strftime(form) for at in starts]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _tick_of_bytes(size: float) -> str:
    return formats.size(size).replace(".0 ", " ")
