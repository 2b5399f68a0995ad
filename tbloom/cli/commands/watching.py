"""``tbloom metrics``, which serves metrics to Prometheus, and ``tbloom watch``, which serves a page about a fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from tbloom.cli.commands.targets import Target, of_fleet, on_server
from tbloom.cli.kit import options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server

if TYPE_CHECKING:
    from tbloom.cli.commands.page import Overview

PORT, WATCH_PORT, EVERY = 9185, 8140, 5.0

_every = click.option(
    "--every",
    type=click.FloatRange(0, 86_400),
    default=EVERY,
    metavar="SECONDS",
    help=f"least time between two requests to Redis ({EVERY:g})",
)


def _listener(port: int) -> options.Decorator:
    return options.all_of(
        click.option(
            "--port", type=click.IntRange(0, 65535), default=port, help=f"0: any free port ({port})"
        ),
        click.option("--host", default="127.0.0.1", help="to listen at (127.0.0.1, this machine)"),
    )


@click.command(cls=Command, extra="metrics", example="tbloom metrics news --port 9185")
@options.names
@on_server
@_listener(PORT)
@_every
def metrics(names: tuple[str, ...], server: Server, port: int, host: str, every: float) -> None:
    """Serve the metrics of filters, for Prometheus.

    A filter that does not exist yet, or no longer, has the metric tbloom_filter_up = 0. Without names, all filters with slices
    are served; they are searched among all keys of the server, once a minute, so that a cleared one has 0 until then.
    """
    import prometheus_client as prometheus  # noqa: PLC0415 - the help does without

    from tbloom.metrics import FilterCollector, read_filter  # noqa: PLC0415 - the same

    # A wrong server is an error now; later it would only be tbloom_up.
    if names:
        server.kind(names[0])
    found: Callable[[], Sequence[str]] = (lambda: names) if names else server.searched
    registry = prometheus.CollectorRegistry()
    registry.register(
        FilterCollector.reading(lambda: server.each(found(), read_filter), found(), every)
    )
    with _listening(host, port):
        served, thread = prometheus.start_http_server(port, host, registry)
    # The collector logs when an outage begins and ends.
    logging.basicConfig(format="tbloom: %(message)s")
    logging.getLogger("tbloom").setLevel(logging.INFO)
    with suppress(KeyboardInterrupt):
        output.say(f"Serving http://{host}:{served.server_port}/metrics until Ctrl-C")
        thread.join()
    served.shutdown()
    served.server_close()


def _overview(server: Server, words: list[str], **how: Any) -> None:
    """Show all fleets of a server on the page."""
    from tbloom.cli.commands.page import Overview  # noqa: PLC0415 - needs an extra

    _show(Overview(server, words), **how)


@click.command(cls=Command, extra="cli", example="tbloom watch shop --port 8140")
@of_fleet(overview=_overview)
@_listener(WATCH_PORT)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="a name by which a proxy asks for the page; can be repeated",
)
@_every
@click.option(
    "--once",
    "file",
    type=click.Path(),
    metavar="FILE",
    help="write the page to a file instead; -: standard output",
)
def watch(target: Target, **how: Any) -> None:
    """Show a fleet and its filter on a page, live, in a browser.

    The page has the pages by state, the crawlers, the failed pages with the command that gives them to the crawlers again, and the
    slices of the filter. It changes nothing. SPIDER is as of tbloom queue; for a filter, its whole fleet is shown, and without one,
    all filters with crawlers. The page has no login: to see it from another machine, use ssh -L 8140:localhost:8140 HOST, or a proxy
    with a login.
    """
    if target.is_local:
        expected = "expected a filter on a server ('tbloom failed' shows this one)"
        raise CommandError(f"{target.place}: {expected}")
    _show(target, **how)


def _show(
    watched: Target | Overview,
    *,
    port: int,
    host: str,
    names: tuple[str, ...],
    every: float,
    file: str | None,
) -> None:
    """Serve a page, or write it to a file."""
    from tbloom.cli.commands import page  # noqa: PLC0415 - needs an extra

    if file is not None:
        html = page.html_of(watched, page.look_at(watched))
        with streams.writing(file) as opened:
            opened.write(html)
        return
    looks = page.Looks(watched, every)
    looks.page({})  # an error is one now; later it is shown on the page
    with _listening(host, port):
        served = page.PageServer(host, port, looks, names)
    with served, suppress(KeyboardInterrupt):
        output.say(f"Serving {served.url} until Ctrl-C")
        served.serve_forever()


@contextmanager
def _listening(host: str, port: int) -> Iterator[None]:
    """Name the address in errors about it."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--host {host} --port {port}: {why}") from None
