"""The state of a filter as a table, as JSON, and as advice to its owner."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.styled import Styled
from rich.table import Table

from tbloom.cli.kit import formats

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType

    from tbloom.bloom.info import FilterInfo, SliceInfo

#: Up to this times the promised error rate, a filter keeps its promise.
_KEPT = 1.1


def advice(info: FilterInfo) -> list[str]:
    """The filter's warnings, and a sentence for each slice over its capacity."""
    found = list(info.warnings)
    for slice in info.slices:
        if slice.items > info.capacity:
            times = slice.items / info.capacity
            parts = f"; it has grown to {slice.parts} parts" if slice.parts > 1 else ""
            found.append(
                f"slice {slice.label} holds {times:.1f} times its capacity{parts}: "
                f"reconfigure() with a capacity of {slice.items:,} or more"
            )
    if not keeps_promise(info, info.error_rate):
        found.append(
            f"the error rate is {formats.rate(info.error_rate)}, more than the promised "
            f"{formats.rate(info.promised_error_rate)}"
        )
    return found


def keeps_promise(info: FilterInfo, rate: float) -> bool:
    """True if an error rate of the filter is not higher than promised."""
    return rate <= _KEPT * info.promised_error_rate


def as_dict(info: FilterInfo) -> dict[str, Any]:
    """The fields of ``info``, with totals and advice."""
    return {
        **dataclasses.asdict(info),
        "warnings": advice(info),
        "items": info.items,
        "bytes": info.bytes,
        "error_rate": info.error_rate,
    }


def as_table(info: FilterInfo, newest: int | None = None) -> RenderableType:
    """Parameters, slices (only the ``newest`` n, if given), totals and advice, in 80 columns."""
    lines = [Styled(f"warning: {sentence}", "yellow") for sentence in advice(info)]
    return Group(_parameters(info), "", _slices(info, newest), *lines)


def _parameters(info: FilterInfo) -> str:
    shards = f", {info.shards} shards" if info.shards > 1 else ""
    claims = f", {info.claims:,} claims" if info.claims else ""
    if info.granularity is None:
        window, each, over = "no window: never forgets", "", ""
    else:
        window, each, over = (
            f"{len(info.slices)} slices of {info.granularity!r} ({info.tz})",
            " each",
            " over the window",
        )
    return (
        f"{info.name}: {window}, made for {info.capacity:,} "
        f"items{each} at an error rate of {formats.rate(info.promised_error_rate)}{over}: "
        f"{info.bits:,} bits, {info.hashes} hashes{shards}{claims}"
    )


def _slices(info: FilterInfo, newest: int | None) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="bold")
    columns = [
        ("slice", "window", "left"),
        ("from", "", "left"),
        ("expires", "", "left"),
        ("items", f"{info.items:,}", "right"),
        ("full", "", "right"),
        ("error rate", formats.rate(info.error_rate), "right"),
        ("memory", formats.size(info.bytes), "right"),
    ]
    rows = [_row(info, slice) for slice in info.slices[-(newest or 0) :]]
    if any(slice.parts > 1 for slice in info.slices):
        columns.append(("parts", "", "right"))
    if info.granularity is None:
        columns, rows = [columns[0], *columns[3:]], [[row[0], *row[3:]] for row in rows]
    elif info.granularity.endswith("s"):  # the label of such a slice is its start
        del columns[1]
        rows = [[label, *more] for label, _, *more in rows]
    for heading, footer, justify in columns:
        table.add_column(heading, footer, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row[: len(columns)])
    return table


def _row(info: FilterInfo, slice: SliceInfo) -> list[str]:
    full = slice.items / info.capacity
    return [
        slice.label,
        _moment(info, slice.start),
        _moment(info, slice.expires),
        f"{slice.items:,}",
        f"{formats.bar(full, 5)} {100 * full:3.0f} %",
        formats.rate(slice.error_rate),
        formats.size(slice.bytes),
        f"{slice.parts}",
    ]


def _moment(info: FilterInfo, at: datetime | None) -> str:
    """A time, without the hour where slices begin at midnight."""
    return formats.moment(at).removesuffix(" 00:00" if info.granularity in {"d", "w", "m"} else "")
