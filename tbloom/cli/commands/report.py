"""``tbloom report``: an HTML page about filters, in one file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import click

from tbloom.bloom.info import FilterInfo
from tbloom.bloom.sizing import slice_rate
from tbloom.cli.commands.listing import advice
from tbloom.cli.kit import filters, formats, options, output, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
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
    page = output.page(
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


def charts(info: FilterInfo) -> list[dict[str, Any]]:
    """Items, error rate, fill ratio and memory of each slice."""
    slices, capacity = info.slices, info.capacity
    share = slice_rate(info.promised_error_rate, len(slices))
    full = -math.expm1(-info.hashes * capacity / info.bits) if capacity else None
    items = [slice.items for slice in slices]
    rates, fills = [s.error_rate for s in slices], [s.fill_ratio for s in slices]
    # No limit of the fill ratio: by chance a full slice has a few more bits set.
    at_capacity: dict[str, Any] = {"line_name": "at capacity", "line": full, "limit": math.inf}
    return [
        _chart(info, "Items", items, "{:,}".format, line_name="capacity", line=capacity),
        _chart(info, "Error rate", rates, formats.rate, line_name="a slice's share", line=share),
        _chart(info, "Fill ratio", fills, "{:.3%}".format, **at_capacity),
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
    limit: float | None = None,
) -> dict[str, Any]:
    """A bar for each slice, oldest first, with its height (%), marked where its value is over the ``limit`` (the line's); and
    a dashed line to compare them with."""
    names, highest = [slice.label for slice in info.slices], max(values)
    line_text = "" if line is None else written(line)
    is_shown = line is not None and (not highest or line <= _TOO_HIGH * highest)
    top = max(highest, line or 0) if is_shown else highest
    over = next(most for most in (limit, line, math.inf) if most is not None)
    compared = f"; the line, {line_name}, is at {line_text}" if line_text else ""
    return {
        "title": title,
        "line_name": line_name if line_text else "",
        "line_text": line_text if is_shown else f"{line_text} (above)",
        # None: it is left out, or above the chart.
        "line": 100 * (line or 0) / top if is_shown and top else None,
        "top": written(top) if top else "",
        # For readers who can't see it.
        "description": f"{len(values)} slices, from {names[0]} to {names[-1]}. "
        f"The highest is {written(highest)}{compared}.",
        "bars": [
            {
                "height": 100 * value / (top or 1),
                "is_over": value > over,
                "tip": f"{name}: {written(value)}",
            }
            for name, value in zip(names, values, strict=True)
        ],
        "ends": [*dict.fromkeys([names[0], names[-1]])],
    }
