"""``tbloom metrics``, which serves metrics to Prometheus, and ``tbloom report``, which writes an HTML page."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click
import redis

from tbloom.bloom.info import FilterInfo
from tbloom.cli.commands.listing import advice, window_text
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.errors import TBloomError
from tbloom.exact import ExactInfo
from tbloom.version import __version__

if TYPE_CHECKING:
    from tbloom.metrics import Readings

PORT, EVERY = 9185, 5.0
#: The least time between two searches for filters, which look at all keys of the server (s).
SEARCH_EVERY = 60.0


@click.command(cls=Command, extra="metrics", example="tbloom metrics news --port 9185")
@options.names
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

    A filter that does not exist yet, or no longer, has the metric tbloom_filter_up = 0. Without names, all filters with slices
    are served; they are searched among all keys of the server, once a minute.
    """
    import prometheus_client as prometheus  # noqa: PLC0415 - the help does without

    from tbloom.metrics import FilterCollector  # noqa: PLC0415 - the same

    # A wrong server is an error now; later it would only be tbloom_up.
    served_names: Sequence[str]
    readings: Callable[[], Readings]
    if names:
        server.kind(names[0])
        served_names, readings = names, partial(_readings, server, names)
    else:
        served_names, readings = _searched(server)
    registry = prometheus.CollectorRegistry()
    registry.register(FilterCollector.reading(readings, served_names, every))
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


def _readings(server: Server, names: Iterable[str]) -> Readings:
    from tbloom.metrics import read_filter  # noqa: PLC0415 - of an extra

    # The parameters are read at each scrape, because they may change.
    for name in names:
        try:
            yield name, read_filter(server.filter(name))
        except (TBloomError, CommandError, redis.ResponseError) as error:
            yield name, error


def _searched(server: Server) -> tuple[list[str], Callable[[], Readings]]:
    """Return the names of all filters with slices, and what reads them; it searches again, and changes the names, once a minute."""
    names, search_at = server.names(filters.WITH_SLICES), time.monotonic() + SEARCH_EVERY

    def readings() -> Readings:
        nonlocal search_at
        if time.monotonic() >= search_at:
            names[:] = server.names(filters.WITH_SLICES)
            search_at = time.monotonic() + SEARCH_EVERY
        yield from _readings(server, names)

    return names, readings


@click.command(cls=Command, extra="cli", example="tbloom report news images -o report.html")
@options.names
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
    """Return an HTML page about filters of this server, in UTF-8."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - of an extra

    # Values are escaped: names of filters are not trusted.
    environment = Environment(
        loader=PackageLoader("tbloom.cli", "commands"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = {"size": formats.size, "rate": formats.rate, "moment": formats.moment}
    environment.filters |= {"number": "{:,}".format, **shown}
    html = environment.get_template("report.html").render(
        filters=filters,
        server=server,
        made=datetime.now(UTC),
        version=__version__,
        advice=advice,
        window_text=window_text,
        most=lambda info: max(slice.items / info.made_for(slice) for slice in info.slices),
    )
    return html.encode(errors="replace")  # a URL may have bytes that are no UTF-8
