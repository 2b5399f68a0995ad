"""A filter as a table, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tbloom.cli.kit import words
from tbloom.cli.kit.advice import advice

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tbloom.bloom.info import FilterInfo, SliceInfo


def console() -> Console:
    """Standard output, for results: what is no terminal gets whole lines."""
    made = Console(highlight=False, markup=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def print_json(value: Any) -> None:
    """Prints it as JSON, a time as in ISO 8601."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"no JSON for {value!r}")

    line(json.dumps(value, indent=2, default=plain, ensure_ascii=False))


def line(text: str) -> None:
    """Prints it, if there is a standard output: a shell may have closed it (``>&-``)."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")


def as_dict(info: FilterInfo) -> dict[str, Any]:
    """What ``info`` tells, with its sums and what is to be said of it."""
    return {
        **dataclasses.asdict(info),
        "warnings": advice(info),
        "items": info.items,
        "bytes": info.bytes,
        "error_rate": info.error_rate,
    }


def facts(*rows: tuple[str, str, str]) -> Table:
    """A name, a figure and a remark in each line."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def as_table(info: FilterInfo, newest: int | None = None) -> RenderableType:
    """Parameters, slices (or the ``newest`` of them), sums and warnings, in 80 columns."""
    lines = [Text(f"warning: {sentence}", style="yellow") for sentence in advice(info)]
    return Group(Text(parameters(info)), Text(), _slices(info, newest), *lines)


def _slices(info: FilterInfo, newest: int | None) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="bold")
    columns = [
        ("slice", "window", "left"),
        ("from", "", "left"),
        ("expires", "", "left"),
        ("items", f"{info.items:,}", "right"),
        ("full", "", "right"),
        ("error rate", words.rate(info.error_rate), "right"),
        ("memory", words.size(info.bytes), "right"),
    ]
    rows = [_row(info, slice) for slice in info.slices[-(newest or 0) :]]
    if any(slice.parts > 1 for slice in info.slices):
        columns.append(("parts", "", "right"))
    if info.granularity.endswith("s"):  # the label of such a slice says when it begins
        del columns[1]
        rows = [[label, *more] for label, _, *more in rows]
    for heading, footer, justify in columns:
        table.add_column(heading, footer, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row[: len(columns)])
    return table


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
    return [
        slice.label,
        _moment(info, slice.start),
        _moment(info, slice.expires),
        f"{slice.items:,}",
        f"{words.bar(full, 5)} {100 * full:3.0f} %",
        words.rate(slice.error_rate),
        words.size(slice.bytes),
        f"{slice.parts}",
    ]


def _moment(info: FilterInfo, at: datetime | None) -> str:
    """Days, weeks and months begin at midnight, which need not be said."""
    return words.moment(at).removesuffix(" 00:00" if info.granularity in {"d", "w", "m"} else "")
