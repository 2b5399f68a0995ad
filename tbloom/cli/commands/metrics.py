"""``tbloom metrics``: serves the metrics of filters to Prometheus."""

from __future__ import annotations

import gc
import logging
from contextlib import suppress

import click

from tbloom.cli.kit import filters, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server

PORT, EVERY = 9185, 5.0


@click.command(cls=Command, example="tbloom metrics news --port 9185")
@options.some_names
@options.server
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, help=f"({PORT}); 0: any free")
@click.option("--host", default="127.0.0.1", help="to listen at (127.0.0.1, this machine)")
@click.option(
    "--every",
    type=click.FloatRange(0, 86_400),
    default=EVERY,
    metavar="SECONDS",
    help=f"least time between two requests to Redis ({EVERY:g})",
)
def command(names: tuple[str, ...], server: Server, port: int, host: str, every: float) -> None:
    """Serves the metrics of filters, for Prometheus.

    Without names, of all filters, which are looked up at each scrape.
    """
    from prometheus_client import (  # noqa: PLC0415 - the help does without
        CollectorRegistry,
        start_http_server,
    )

    from tbloom.cli.metrics import FilterCollector  # noqa: PLC0415 - the same

    # A wrong name is an error now; later it would only be tbloom_filter_up.
    list(map(server.filter, names))
    # Half a million samples a scrape, of ten thousand filters: Python would look for cycles after each 700.
    gc.set_threshold(100_000)
    registry = CollectorRegistry()
    registry.register(
        FilterCollector.reading(
            # Their parameters are read at each scrape: they may change.
            lambda: server.infos(names or server.names(filters.WITH_SLICES)),
            every,
            names,
        )
    )
    try:
        served, thread = start_http_server(port, host, registry)
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
