"""``tbloom report``: an HTML page about filters, in one file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import click

from tbloom.bloom.info import FilterInfo
from tbloom.bloom.sizing import slice_rate
from tbloom.cli.kit import filters, formats, html, options, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filter_info import advice
from tbloom.cli.kit.progress import Reporter
from tbloom.version import __version__

#: Longer tables of slices, and longer lists of warnings, are folded.
_MAX_ROWS = 31
_MAX_WARNINGS = 5
#: A line that is this many times as high as the highest bar is left out: no bar could be seen below it.
_TOO_HIGH = 10


@click.command(cls=Command, example="tbloom report news images -o report.html")
@options.some_names
@options.url
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    default="report.html",
    help="where to write it; -: standard output (report.html)",
)
def command(names: tuple[str, ...], url: str, output: str) -> None:
    """Writes an HTML page about filters.

    Without names, about all filters with slices.
    """
    with filters.connect(url) as server:
        names = names or (*server.names(filters.WITH_SLICES),)
        if not names:
            raise CommandError(f"no filters on {server.place}")
        infos = list[FilterInfo]()
        for _, info in server.infos(names):
            if isinstance(info, Exception):
                raise info
            infos.append(info)
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
        max_warnings=_MAX_WARNINGS,
    )
    with streams.writing(output) as file:
        file.write(page)
    if output != "-":
        Reporter(stderr=True).say(f"{output}: {', '.join(names)}")


class Bar(NamedTuple):
    """A slice: its height, and that of the part below the limit (%); the rest has another colour."""

    height: float
    below_limit: float
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


class _Line(NamedTuple):
    name: str
    value: float
    #: Values above the line are too high.
    is_limit: bool = False


def charts(info: FilterInfo) -> list[Chart]:
    """Items, error rate, fill ratio and memory of each slice."""
    slices = info.slices
    full = capacity = None
    if info.capacity is not None:
        # No limit: by chance a full slice has a few more bits set.
        full = _Line("at capacity", -math.expm1(-info.hashes * info.capacity / info.bits))
        capacity = _Line("capacity", info.capacity, is_limit=True)
    share = slice_rate(info.promised_error_rate, len(slices))
    allowed = _Line("a slice's share", share, is_limit=True)
    return [
        _chart(info, "Items", [s.items for s in slices], capacity, "{:,}".format),
        _chart(info, "Error rate", [s.error_rate for s in slices], allowed, formats.rate),
        _chart(info, "Fill ratio", [s.fill_ratio for s in slices], full, _percent),
        _chart(info, "Memory", [s.bytes for s in slices], None, formats.size),
    ]


def _chart(
    info: FilterInfo,
    title: str,
    values: Sequence[float],
    line: _Line | None,
    written: Callable[[float], str],
) -> Chart:
    names = [slice.label for slice in info.slices]
    highest = max(values)
    description = (
        f"{len(values)} slices, from {names[0]} to {names[-1]}. The highest is {written(highest)}"
    )
    top, limit, height = highest or 1, math.inf, None
    if line is not None:
        limit = line.value if line.is_limit else math.inf
        above = f"; {sum(value > limit for value in values)} above it" if line.is_limit else ""
        description += f"; the line, {line.name}, is at {written(line.value)}{above}"
        if highest * _TOO_HIGH >= line.value or not highest:
            top = max(highest, line.value)
            height = 100 * line.value / top
    return Chart(
        title,
        line_name=line.name if line else "",
        line_text=written(line.value) + (" (above)" if height is None else "") if line else "",
        line=height,
        top=written(top) if highest or line else "",
        description=f"{description}.",
        bars=[
            Bar(100 * value / top, 100 * min(value, limit) / top, f"{name}: {written(value)}")
            for name, value in zip(names, values, strict=True)
        ],
        ends=[*dict.fromkeys([names[0], names[-1]])],
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"
