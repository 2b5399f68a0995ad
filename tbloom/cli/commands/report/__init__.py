"""``tbloom report``: an HTML page about filters, in one file."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.resources import files as resources
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from tbloom.cli.commands.report.charts import charts
from tbloom.cli.kit import filters, formats, outfile
from tbloom.cli.kit.filter_info import advice
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets
from tbloom.version import __version__

if TYPE_CHECKING:
    import argparse

    from tbloom.bloom.info import FilterInfo

#: Longer tables of slices, and longer lists of warnings, are folded.
_MAX_ROWS = 31
_MAX_WARNINGS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME ..., --url, --output."""
    filters.add_url(parser)
    parser.add_argument("names", metavar="NAME", nargs="+", help="the filters' names (tbloom list)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="where to write it; -: standard output (report.html)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the page after all filters have been read."""
    with filters.connect(arguments.url) as client:
        infos = [
            filters.open_stored(arguments.url, client, name).info() for name in arguments.names
        ]
    html = page(infos, without_secrets(arguments.url), datetime.now(timezone.utc))
    with outfile.writing(arguments.output) as file:
        file.write(html)
    if arguments.output != "-":
        Reporter(stderr=True).say(f"{arguments.output}: {', '.join(arguments.names)}")
    return 0


def page(infos: list[FilterInfo], server: str, made: datetime) -> bytes:
    """The page, in UTF-8; ``server`` is a URL without a password."""
    environment = Environment(
        autoescape=True,  # names of filters are not trusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "size": formats.size,
        "rate": formats.rate,
        "one_in": formats.one_in,
        "moment": formats.moment,
    }
    template = (
        resources("tbloom.cli")
        .joinpath("commands", "report", "report.html")
        .read_text(encoding="utf-8")
    )
    html = environment.from_string(template).render(
        filters=infos,
        server=server,
        made=made,
        version=__version__,
        advice=advice,
        charts=charts,
        periods=formats.PERIODS,
        max_rows=_MAX_ROWS,
        max_warnings=_MAX_WARNINGS,
    )
    return html.encode(errors="replace")  # a URL may have bytes that are no UTF-8
