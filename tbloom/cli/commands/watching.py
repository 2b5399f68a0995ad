"""``tbloom metrics``: serves the metrics of filters to Prometheus; ``tbloom report``: an HTML page about them, in one file."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import click

from tbloom.bloom.info import FilterInfo
from tbloom.bloom.sizing import slice_rate
from tbloom.cli.commands.listing import KEPT, advice
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.version import __version__

PORT, EVERY = 9185, 5.0

#: Longer tables of slices are folded.
_MAX_ROWS = 31


@click.command(cls=Command, example="tbloom metrics news --port 9185")
@options.some_names
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
    """Serves the metrics of filters, for Prometheus.

    Without names, of all filters, which are looked up at each scrape.
    """
    import prometheus_client as prometheus  # noqa: PLC0415 - the help does without

    from tbloom.metrics import FilterCollector  # noqa: PLC0415 - the same

    # A wrong name is an error now; later it would only be tbloom_filter_up.
    list(map(server.filter, names))
    # Half a million samples a scrape, of ten thousand filters: Python would look for cycles after each 700.
    gc.set_threshold(100_000)
    registry = prometheus.CollectorRegistry()
    registry.register(
        FilterCollector.reading(
            # Their parameters are read at each scrape: they may change.
            lambda: server.infos(names or server.names(filters.WITH_SLICES)),
            every,
            names,
        )
    )
    try:
        served, thread = prometheus.start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--host {host} --port {port}: {why}") from None
    # The collector's log, on stderr: the begin and the end of an outage.
    logging.basicConfig(format="tbloom: %(message)s")
    logging.getLogger("tbloom").setLevel(logging.INFO)
    with suppress(KeyboardInterrupt):
        output.say(f"Serving http://{host}:{served.server_port}/metrics until Ctrl-C")
        thread.join()
    served.shutdown()
    served.server_close()


@click.command(cls=Command, example="tbloom report news images -o report.html")
@options.some_names
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
    """Writes an HTML page about filters.

    Without names, about all filters with slices. Exit code 1: one of them can't be read.
    """
    infos, code = list[FilterInfo](), 0
    for name, info in server.infos(names or server.names(filters.WITH_SLICES)):
        if isinstance(info, FilterInfo):
            infos.append(info)
        elif names:
            raise info if isinstance(info, Exception) else server.exact(name)
        else:  # it was not asked for
            _, code = output.readable([(name, info)])
    if code and not infos:
        return code
    if not infos:
        raise CommandError(f"no filters on {server.place}")
    page = output.page(
        "report.html",
        filters=infos,
        server=server.place,
        made=datetime.now(UTC),
        version=__version__,
        advice=advice,
        charts=charts,
        periods=formats.PERIODS,
        max_rows=_MAX_ROWS,
    )
    with streams.writing(file) as opened:
        opened.write(page)
    if file != "-":
        output.say(f"{file}: {', '.join(info.name for info in infos)}")
    return code


class Chart(NamedTuple):
    """A value of each slice, oldest first, as bars; and a line to compare them with, if there is one."""

    title: str
    values: list[float]
    written: Callable[[float], str]
    line_name: str = ""
    line: float | None = None

    def is_over(self, value: float) -> bool:
        """True if the value is well over the line."""
        return self.line is not None and value > KEPT * self.line


def charts(info: FilterInfo) -> list[Chart]:
    """Items, error rate, fill ratio and memory, if it is known, of each slice."""
    slices, capacity = info.slices, info.capacity
    share = slice_rate(info.promised_error_rate, len(slices))
    full = -math.expm1(-info.hashes * capacity / info.bits) if capacity else None
    rates, fills = [s.error_rate for s in slices], [s.fill_ratio for s in slices]
    sizes: list[float] = [] if info.bytes is None else [s.bytes or 0 for s in slices]
    return [
        Chart("Items", [s.items for s in slices], "{:,}".format, "capacity", capacity),
        Chart("Error rate", rates, formats.rate, "a slice's share", share),
        Chart("Fill ratio", fills, "{:.3%}".format, "at capacity", full),
        *([Chart("Memory", sizes, formats.size)] if sizes else []),
    ]
