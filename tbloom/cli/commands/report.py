"""``tbloom report``: an HTML page about filters, in one file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import click

from tbloom.bloom.info import FilterInfo
from tbloom.bloom.sizing import slice_rate
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filter_info import advice
from tbloom.cli.kit.filters import Server
from tbloom.version import __version__

#: Longer tables of slices are folded.
_MAX_ROWS = 31
#: A line that is this many times as high as the highest bar is left out: no bar could be seen below it.
_TOO_HIGH = 10


@click.command(cls=Command, example="tbloom report news images -o report.html")
@options.some_names
@options.server
@click.option(
    "-o",
    "--output",
    "file",
    metavar="FILE",
    type=click.Path(),
    default="report.html",
    help="where to write it; -: standard output (report.html)",
)
def command(names: tuple[str, ...], server: Server, file: str) -> None:
    """Writes an HTML page about filters.

    Without names, about all filters with slices.
    """
    names = names or (*server.names(filters.WITH_SLICES),)
    if not names:
        raise CommandError(f"no filters on {server.place}")
    infos = []
    for name, info in server.infos(names):
        if not isinstance(info, FilterInfo):
            raise info if isinstance(info, Exception) else server.exact(name)
        infos.append(info)
    from tbloom.cli.kit import html  # noqa: PLC0415 - the help does without jinja2

    page = html.page(
        "report.html",
        filters=infos,
        server=server.place,
        made=datetime.now(timezone.utc),
        version=__version__,
        advice=advice,
        charts=charts,
        periods=formats.PERIODS,
        max_rows=_MAX_ROWS,
    )
    with streams.writing(file) as opened:
        opened.write(page)
    if file != "-":
        output.say(f"{file}: {', '.join(names)}")


class Bar(NamedTuple):
    """A slice: its height (%), and whether its value is too high."""

    height: float
    is_over: bool
    tip: str


class Chart(NamedTuple):
    """A bar for each slice, oldest first, and a dashed line to compare them with."""

    title: str
    line_name: str
    line_text: str
    #: The height of the line (%); None: it is left out, or above the chart.
    line: float | None
    #: The value at the upper edge.
    top: str
    #: The chart in words, for readers who can't see it.
    description: str
    bars: list[Bar]
    #: The labels of the first and the last slice.
    ends: list[str]


def charts(info: FilterInfo) -> list[Chart]:
    """Items, error rate, fill ratio and memory of each slice."""
    slices, capacity = info.slices, info.capacity
    share = slice_rate(info.promised_error_rate, len(slices))
    full = -math.expm1(-info.hashes * capacity / info.bits) if capacity else None
    items = [slice.items for slice in slices]
    rates, fills = [s.error_rate for s in slices], [s.fill_ratio for s in slices]
    return [
        _chart(info, "Items", items, "{:,}".format, line_name="capacity", line=capacity),
        _chart(info, "Error rate", rates, formats.rate, line_name="a slice's share", line=share),
        # No limit: by chance a full slice has a few more bits set.
        _chart(
            *(info, "Fill ratio", fills, "{:.3%}".format),
            line_name="at capacity",
            line=full,
            is_limit=False,
        ),
        _chart(info, "Memory", [s.bytes for s in slices], formats.size),
    ]


def _chart(
    info: FilterInfo,
    title: str,
    values: Sequence[float],
    written: Callable[[float], str],
    *,
    line_name: str = "",
    line: float | None = None,
    is_limit: bool = True,
) -> Chart:
    names = [slice.label for slice in info.slices]
    highest = max(values)
    line_text = "" if line is None else written(line)
    shows_line = line is not None and (not highest or line <= _TOO_HIGH * highest)
    top = max(highest, line or 0) if shows_line else highest
    limit = line if is_limit and line is not None else math.inf
    return Chart(
        title,
        line_name if line is not None else "",
        line_text if shows_line or line is None else f"{line_text} (above)",
        100 * (line or 0) / top if shows_line and top else None,
        written(top) if top else "",
        f"{len(values)} slices, from {names[0]} to {names[-1]}. The highest is {written(highest)}"
        + (f"; the line, {line_name}, is at {line_text}." if line_text else "."),
        [
            Bar(100 * value / (top or 1), value > limit, f"{name}: {written(value)}")
            for name, value in zip(names, values, strict=True)
        ],
        [*dict.fromkeys([names[0], names[-1]])],
    )
