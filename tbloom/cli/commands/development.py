"""``tbloom doctor``, ``tbloom server`` and ``tbloom demo``."""

from __future__ import annotations

from pathlib import Path

import click

from tbloom.cli.commands.project import settings_here
from tbloom.cli.commands.targets import given_settings, named
from tbloom.cli.kit import formats, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import FAILED


@click.command(cls=Command, extra="scrapy", example="tbloom doctor")
@given_settings
@options.url
@options.prefix
def doctor(given: dict[str, str], url: str | None, prefix: str | None) -> int:
    """Say what is wrong with a Scrapy project's settings.

    Run it in the project's folder. It reads the settings of the project and of each spider, and compares them with what Redis
    has stored; it changes nothing. Exit code 1: something is wrong, such as an add-on that is off; of each spider, the fault is named
    that a crawl would meet first. A note is no fault: a Scrapy or redis-py that is newer than tbloom's tests know, a setting that does
    not fit several crawlers of a spider, a method that Scrapy never calls, a server that writes nothing to its disk, what it has
    lost, or an HTTP cache that serves the responses of failed pages again.
    """
    settings = settings_here()

    from tbloom.scrapy.extras.doctor import examine  # noqa: PLC0415 - needs Scrapy
    from tbloom.scrapy.extras.project import settings_of  # noqa: PLC0415 - the same
    from tbloom.scrapy.hooks import untested_versions  # noqa: PLC0415 - the same

    faults, notes = examine(settings_of(given | named(url, prefix), settings))
    for note in [*untested_versions(), *notes]:
        output.line(formats.printable(f"note: {note}"))
    for fault in faults:
        what, *where = fault.splitlines()
        output.line(formats.printable(f"✗ {what}"))
        for place in where:
            output.line(formats.printable(f"  {place}"))
    if faults:
        output.line(f"{formats.counted(len(faults), 'fault')}: change what the ✗ says")
        return FAILED
    output.line(
        "✓ tbloom filters the requests of this project; no fault in its settings and spiders, or at the server"
    )
    return 0


@click.command(cls=Command, extra="server", example="tbloom server")
@click.option(
    "--data",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    default="tbloom-data",
    metavar="FOLDER",
    help="where it keeps its data (tbloom-data, in the current folder)",
)
@click.option("--port", type=click.IntRange(1, 65535), default=6379, help="(6379)")
def server(data: Path, port: int) -> None:
    """Run a Redis for this machine, which keeps its data.

    It is a Valkey, without a password, that only programs of this machine can reach. Ctrl-C, SIGTERM or SIGHUP end it; the next
    start finds what it had. Nothing is lost if this command is killed; a full disk, or a crash of the machine, may lose the last
    second.
    """
    from tbloom.demo.server import serve  # noqa: PLC0415 - the help does without redis-py

    folder = data.absolute()
    serve(
        data, port, lambda url: output.say(f"Serving {url} until Ctrl-C, with the data in {folder}")
    )


@click.command(cls=Command, extra="demo", example="tbloom demo --crawlers 4")
@click.option("--crawlers", type=click.IntRange(1, 32), default=3, help="crawler processes (3)")
def demo(crawlers: int) -> int:
    """Let a fleet of crawlers share a site, then run again.

    The site is made for it, on this machine. Its Redis is that of REDIS_URL, or one that is started. Exit code 1: a run fetched
    other pages than it should.
    """
    from tbloom.demo import run  # noqa: PLC0415 - the help does without Scrapy

    return run(crawlers)
