"""``tbloom metrics``: serves the metrics of filters to Prometheus."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server

from tbloom.cli.kit import filters, interrupts, numbers
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.metrics import MAX_AGE, FilterCollector
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from threading import Thread

    from tbloom.bloom.info import FilterInfo

PORT = 9185
#: Time between two looks for Ctrl-C.
_LOOK_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME ..., --url, --port, --host, --every."""
    filters.add_url(parser)
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="the filters (all, looked up at each scrape)"
    )
    parser.add_argument(
        "--port", type=numbers.port, default=PORT, help=f"({PORT}); 0: any free port"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at (127.0.0.1, this machine)"
    )
    parser.add_argument(
        "--every",
        type=numbers.seconds,
        default=MAX_AGE,
        metavar="SECONDS",
        help=f"least time between two requests to Redis ({MAX_AGE:g})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves the metrics until it is interrupted."""
    url, names = arguments.url, arguments.names
    for name in names:
        if names.count(name) > 1:
            raise CommandError(
                f"NAME: expected each filter once, got {name!r} {names.count(name)} times"
            )
    with filters.connect(url) as client:
        for name in names:
            # A wrong name is an error now; later it would only be tbloom_filter_up.
            filters.open_stored(url, client, name)
        registry = CollectorRegistry()
        registry.register(_collector(url, client, names, arguments.every))
        with _served(arguments.host, arguments.port, registry) as thread:
            _show_log()
            with suppress(KeyboardInterrupt), interrupts.held_back() as look:
                while thread.is_alive():
                    look()
                    thread.join(_LOOK_SECONDS)
    return 0


@dataclass(frozen=True, slots=True)
class _Stored:
    """A filter whose parameters are read at each scrape: they may have been changed."""

    url: str
    client: Any
    name: str

    def info(self) -> FilterInfo:
        try:
            return filters.open_stored(self.url, self.client, self.name, retry_for=0).info()
        except CommandError as error:  # the filter has vanished
            raise TBloomError(str(error)) from None


class _All(FilterCollector):
    """All filters on a server, except exact filters."""

    def __init__(self, url: str, client: Any, max_age: float) -> None:
        super().__init__(max_age=max_age)
        self._url, self._client = url, client

    def filters(self) -> Iterator[_Stored]:
        for name in filters.names(self._client):
            if filters.stored_exact(self._client, name):
                continue
            yield _Stored(self._url, self._client, name)


def _collector(url: str, client: Any, names: list[str], max_age: float) -> FilterCollector:
    if not names:
        return _All(url, client, max_age)
    return FilterCollector(*(_Stored(url, client, name) for name in names), max_age=max_age)


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


def _show_log() -> None:
    """Prints the collector's log on stderr: the begin and the end of an outage."""
    logging.basicConfig(format="tbloom: %(message)s")
    logging.getLogger("tbloom").setLevel(logging.INFO)
