"""``tbloom metrics``, which serves metrics to Prometheus, and ``tbloom report``, which writes an HTML page."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime

import click

from tbloom.bloom.info import FilterInfo
from tbloom.cli.commands.listing import advice, window_text
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.exact import ExactInfo
from tbloom.version import __version__

PORT, EVERY = 9185, 5.0


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

    server.kind(names[0])  # a wrong server is an error now; later it would only be tbloom_up
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
