"""A filter as a table, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tbloom.cli import words
from tbloom.cli.advice import advice

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tbloom.info import FilterInfo, SliceInfo


def console() -> Console:
    """Standard output, for results: what is no terminal gets whole lines."""
    made = Console(highlight=False, markup=False)
    if not made.is_terminal:
        made.width = 200
    return made


def to_json(value: Any) -> str:
    """As JSON, a time as in ISO 8601."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"no JSON for {value!r}")

    return json.dumps(value, indent=2, default=plain, ensure_ascii=False)


def as_dict(info: FilterInfo) -> dict[str, Any]:
    """What ``info`` tells, with its sums and what is to be said of it."""
    return {
        **dataclasses.asdict(info),
        "items": info.items,
        "bytes": info.bytes,
        "error_rate": info.error_rate,
        "advice": advice(info),
    }


def as_table(info: FilterInfo, newest: int | None = None) -> RenderableType:
    """Parameters, slices, or only the ``newest`` so many, sums and warnings."""
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="bold")
    table.add_column("slice", "window")
    table.add_column("from")
    table.add_column("to")
    table.add_column("expires")
    table.add_column("items", f"{info.items:,}", justify="right")
    table.add_column("full")
    table.add_column("", justify="right")
    table.add_column("error rate", words.rate(info.error_rate), justify="right")
    table.add_column("memory", words.size(info.bytes), justify="right")
    for slice in info.slices[-newest:] if newest else info.slices:
        table.add_row(*_row(info, slice))
    lines = [Text(f"warning: {sentence}", style="yellow") for sentence in advice(info)]
    return Group(Text(parameters(info)), Text(), table, *lines)


def parameters(info: FilterInfo) -> str:
    """The filter's parameters, in a line or two."""
    shards = f", {info.shards} shards" if info.shards > 1 else ""
    claims = f", {info.claims:,} claims" if info.claims else ""
    return (
        f"{info.name}: {len(info.slices)} slices of {info.granularity!r} ({info.tz}), made for {info.capacity:,} "
        f"items each at an error rate of {words.rate(info.promised_error_rate)} over the window: "
        f"{info.bits:,} bits, {info.hashes} hashes{shards}{claims}"
    )


def _row(info: FilterInfo, slice: SliceInfo) -> list[str]:
    full = slice.items / info.capacity
    label = f"{slice.label} ({slice.parts} parts)" if slice.parts > 1 else slice.label
    return [
        label,
        words.moment(slice.start),
        words.moment(slice.end),
        words.moment(slice.expires),
        f"{slice.items:,}",
        words.bar(full),
        f"{100 * full:.0f} %",
        words.rate(slice.error_rate),
        words.size(slice.bytes),
    ]
