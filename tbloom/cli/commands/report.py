"""``tbloom report``: what filters hold, as one HTML page that needs nothing else."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.resources import files as resources
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from tbloom.cli.kit import filters, outfile, words
from tbloom.cli.kit.advice import advice
from tbloom.cli.kit.charts import charts
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets
from tbloom.version import __version__

if TYPE_CHECKING:
    import argparse

    from tbloom.bloom.info import FilterInfo

_PERIODS = {"h": "an hour", "d": "a day", "w": "a week", "m": "a month"}
#: A longer table of slices is folded.
_MOST_ROWS = 31
#: ... and further warnings, too.
_MOST_WARNINGS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME ..., --output."""
    filters.add_url(parser)
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="the filters' names (tbloom list URL)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="where to write it; - for standard output (report.html)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the page, once all filters have been read."""
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
        autoescape=True,  # names come from the server
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "size": words.size,
        "rate": words.rate,
        "one_in": words.one_in,
        "moment": words.moment,
    }
    template = resources("tbloom.cli").joinpath("kit", "report.html").read_text(encoding="utf-8")
    html = environment.from_string(template).render(
        filters=infos,
        server=server,
        made=made,
        version=__version__,
        advice=advice,
        charts=charts,
        periods=_PERIODS,
        most_rows=_MOST_ROWS,
        most_warnings=_MOST_WARNINGS,
    )
    return html.encode(errors="replace")  # a URL may have what is no UTF-8
