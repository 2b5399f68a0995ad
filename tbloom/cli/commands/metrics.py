"""``tbloom metrics``: serves the metrics of filters to Prometheus."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from prometheus_client import CollectorRegistry, start_http_server

from tbloom.cli.kit import filters, interrupts, numbers, options
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.metrics import MAX_AGE, FilterCollector
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Thread

    from tbloom.bloom.info import FilterInfo
    from tbloom.cli.kit.filters import Server

PORT = 9185
#: Time between two looks for Ctrl-C.
_LOOK_SECONDS = 0.2


@click.command(cls=Command, example="tbloom metrics news --port 9185")
@options.some_names
@options.url
@click.option(
    "--port",
    type=numbers.port,
    default=str(PORT),
    metavar="PORT",
    help=f"({PORT}); 0: any free port",
)
@click.option(
    "--host", default="127.0.0.1", help="the address to listen at (127.0.0.1, this machine)"
)
@click.option(
    "--every",
    type=numbers.seconds,
    default=str(MAX_AGE),
    metavar="SECONDS",
    help=f"least time between two requests to Redis ({MAX_AGE:g})",
)
def command(names: tuple[str, ...], url: str, port: int, host: str, every: float) -> None:
    """Serves the metrics of filters, for Prometheus.

    Without names, of all filters, which are looked up at each scrape.
    """
    for name in names:
        if names.count(name) > 1:
            raise CommandError(
                f"NAME: expected each filter once, got {name!r} {names.count(name)} times"
            )
    with filters.connect(url) as server:
        for name in names:
            # A wrong name is an error now; later it would only be tbloom_filter_up.
            server.filter(name)
        registry = CollectorRegistry()
        registry.register(collector(server, names, every))
        with _served(host, port, registry) as thread:
            # The collector's log, on stderr: the begin and the end of an outage.
            logging.basicConfig(format="tbloom: %(message)s")
            logging.getLogger("tbloom").setLevel(logging.INFO)
            with suppress(KeyboardInterrupt), interrupts.held_back() as look:
                while thread.is_alive():
                    look()
                    thread.join(_LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A filter whose parameters are read at each scrape: they may have been changed."""

    server: Server
    name: str

    @property
    def client(self) -> Any:
        return self.server.client

    def info(self) -> FilterInfo:
        try:
            return self.server.filter(self.name, retry_for=0).info()
        except CommandError as error:  # the filter has vanished
            raise TBloomError(str(error)) from None


class _All(FilterCollector):
    """All filters on a server, except exact filters."""

    def __init__(self, server: Server, max_age: float) -> None:
        super().__init__(max_age=max_age)
        self._server = server

    def filters(self) -> Iterator[_Stored]:
        return (_Stored(self._server, name) for name in self._server.names(filters.WITH_SLICES))


def collector(server: Server, names: tuple[str, ...], max_age: float) -> FilterCollector:
    """The metrics of these filters, or of all."""
    if not names:
        return _All(server, max_age)
    return FilterCollector(*(_Stored(server, name) for name in names), max_age=max_age)


@contextmanager
def _served(host: str, port: int, registry: CollectorRegistry) -> Iterator[Thread]:
    """Serves the registry in a thread, which it yields."""
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--host {host} --port {port}: {why}") from None
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"Serving http://{shown}:{server.server_port}/metrics until Ctrl-C\n")
    try:
        yield thread
    finally:
        server.shutdown()
        server.server_close()
