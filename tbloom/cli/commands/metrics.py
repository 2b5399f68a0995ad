"""``tbloom metrics``: serves the metrics of filters to Prometheus."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

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
    registry.register(FilterCollector.reading(partial(_infos, server, names), every))
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


def _infos(server: Server, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The filters of these names, or all with slices, each with its info or error; None: the server does not answer."""
    # Their parameters are read at each scrape: they may change.
    unread = dict.fromkeys(names or server.names(filters.WITH_SLICES))
    try:
        for name, info in server.infos([*unread]):
            del unread[name]
            yield name, info
    except filters.OUTAGES as error:
        first, *others = unread
        yield first, error
        yield from dict.fromkeys(others).items()
