"""The state of a filter as a table, as JSON, and as advice to its owner."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from tbloom.cli.kit import formats
from tbloom.cli.kit.output import sentence, table, warnings
from tbloom.exact import ExactInfo

if TYPE_CHECKING:
    from datetime import datetime

    from tbloom.bloom.info import FilterInfo, SliceInfo

#: Up to this times the promised error rate, a filter keeps its promise.
_KEPT = 1.1
#: How full the current slice is (0 to 1) when a filter that doesn't grow warns.
_NEARLY_FULL = 0.95
#: The heading of the bars.
_BAR = ""


def advice(info: FilterInfo) -> list[str]:
    """The filter's warnings, and what its owner should change. (A slice that grows needs no change.)"""
    found = list(info.warnings)
    current, most = info.slices[-1], max(slice.items for slice in info.slices)
    full = current.items / info.made_for(current)
    change = f"tbloom reconfigure {shlex.quote(info.name)}"
    if full >= _NEARLY_FULL and not info.grow:
        found.append(
            f"slice {current.label} is {100 * full:.0f} % full, and doesn't grow: new items are refused then "
            f"({change} --grow)"
        )
    if not keeps_promise(info, info.error_rate):
        larger = f" ({change} --capacity {most})" if info.capacity and most > info.capacity else ""
        found.append(
            f"the error rate is {formats.rate(info.error_rate)}, more than the promised "
            f"{formats.rate(info.promised_error_rate)}{larger}"
        )
    return found


def keeps_promise(info: FilterInfo, rate: float) -> bool:
    """True if an error rate of the filter is not higher than promised."""
    return rate <= _KEPT * info.promised_error_rate


def as_dict(info: FilterInfo | ExactInfo) -> dict[str, Any]:
    """The fields of ``info``, with totals and advice; of an exact filter, its kind."""
    if isinstance(info, ExactInfo):
        return {"kind": "exact", **dataclasses.asdict(info)}
    return {
        **dataclasses.asdict(info),
        "warnings": advice(info),
        "items": info.items,
        "bytes": info.bytes,
        "error_rate": info.error_rate,
    }


def as_text(info: FilterInfo | ExactInfo, *, empty: bool = False, newest: int | None = None) -> str:
    """Parameters, slices, totals and advice; ``empty``: with the empty slices, ``newest``: only the last n slices."""
    if isinstance(info, ExactInfo):
        shards = f", {info.shards} shards" if info.shards > 1 else ""
        held = f"{formats.counted(info.items, 'item')}, {formats.size(info.bytes)}{shards}"
        first = sentence(f"{info.name}: an exact filter: {held}")
        return "\n".join([first, *warnings(info.warnings)])
    slices = [slice for slice in info.slices if empty or slice.items or slice is info.slices[-1]]
    hidden = len(info.slices) - len(slices)
    notes = [f"{formats.counted(hidden, 'empty slice')} not shown (--all)"] if hidden else []
    return "\n".join(
        [
            *(sentence(_parameters(info)), "", _table(info, slices[-(newest or 0) :])),
            *(sentence(note, dim=True) for note in notes),
            *warnings(advice(info)),
        ]
    )


def _parameters(info: FilterInfo) -> str:
    shards = f", {info.shards} shards" if info.shards > 1 else ""
    hashes = "1 hash" if info.hashes == 1 else f"{info.hashes} hashes"
    claims = f", {formats.counted(info.claims, 'claim')}" if info.claims else ""
    if info.granularity is None:
        window, each, over = "never forgets", "", ""
    else:
        period = formats.PERIODS.get(info.granularity, info.granularity)
        slices = formats.counted(len(info.slices), "slice")
        window, each, over = f"{slices} of {period} ({info.tz})", " each", " over the window"
    if info.capacity is not None:
        made_for = f"made for {info.capacity:,} items{each}"
        size = f": {info.bits:,} bits, {hashes}"
    elif info.granularity is None:
        made_for, size = "grows", ""
    else:
        made_for, size = "each made for as many items as the last one held", ""
    return (
        f"{info.name}: {window}, {made_for}, at an error rate of "
        f"{formats.rate(info.promised_error_rate)}{over}{size}{shards}{claims}"
    )


def _table(info: FilterInfo, slices: list[SliceInfo]) -> str:
    totals = {
        "slice": "window",
        "items": f"{info.items:,}",
        "error rate": formats.rate(info.error_rate),
        "memory": formats.size(info.bytes),
    }
    return table(
        [_row(info, slice) for slice in slices],
        left=("slice", "from", "expires", _BAR),
        less=("parts", _BAR, "from", "expires", "full"),
        totals=totals,
    )


def _row(info: FilterInfo, slice: SliceInfo) -> dict[str, str]:
    """The cells, by their headings."""
    full = slice.items / info.made_for(slice)
    row = {"slice": slice.label}
    if info.granularity == "w":  # other labels are dates themselves
        row["from"] = _moment(info, slice.start)
    if info.granularity is not None:
        row["expires"] = _moment(info, slice.expires)
    row |= {
        "items": f"{slice.items:,}",
        "full": f"{100 * full:.0f} %",
        _BAR: formats.bar(full, 5),
        "error rate": formats.rate(slice.error_rate),
        "memory": formats.size(slice.bytes),
    }
    if any(slice.parts > 1 for slice in info.slices):
        row["parts"] = f"{slice.parts}"
    return row


def _moment(info: FilterInfo, at: datetime | None) -> str:
    """A time, without the hour where slices begin at midnight."""
    return formats.moment(at).removesuffix(" 00:00" if info.granularity in {"d", "w", "m"} else "")
