"""Bar charts of a filter's slices, as numbers for the page that draws them.

Heights and positions run from 0 to 100: the page scales them to the reader's screen.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from tbloom.bloom.sizing import slice_rate
from tbloom.cli.kit import formats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tbloom.bloom.info import FilterInfo, SliceInfo

    Written = Callable[[float], str]

_MAX_TICKS = 4
_ROUNDING = 1e-9
#: Number of bars from which there are no gaps: they would be thinner than a pixel.
_DENSE = 80
#: Number of bars from which the outer labels are aligned with the edges of the chart, not centred below a bar.
_ANCHORED = 5
_MONTH, _DAY, _YEAR = timedelta(days=27), timedelta(hours=22), timedelta(days=360)


class Bar(NamedTuple):
    """A slice; the part above the limit has another colour."""

    x: float
    width: float
    #: Both heights are measured from the bottom.
    height: float
    below_limit: float
    tip: str


class Label(NamedTuple):
    """A word below the bars."""

    x: float
    #: The part of the text at ``x``: start, middle or end.
    anchor: str
    text: str


class Chart(NamedTuple):
    """Bars, and a horizontal line to compare them with."""

    title: str
    line_name: str
    line_text: str
    description: str
    bars: list[Bar]
    line: float
    #: Texts from the bottom to the top, at equal distances.
    ticks: list[str]
    labels: list[Label]


class _Line(NamedTuple):
    name: str
    value: float
    #: Values above the line are too high.
    is_limit: bool = False


def charts(info: FilterInfo) -> list[Chart]:
    """Items, fill ratio, error rate and memory of each slice."""
    slices = info.slices
    full = -math.expm1(-info.hashes * info.capacity / info.bits)
    share = slice_rate(info.promised_error_rate, len(slices))
    items = [slice.items for slice in slices]
    rates = [slice.error_rate for slice in slices]
    ratios = [slice.fill_ratio for slice in slices]
    sizes = [slice.bytes for slice in slices]
    capacity = _Line("capacity", info.capacity, is_limit=True)
    allowed = _Line("a slice's share", share, is_limit=True)
    # No limits: by chance a full slice has a few more bits set, and Redis rounds memory up.
    expected, planned = _Line("at capacity", full), _Line("made for", info.bits / 8)
    return [
        _chart(info, "Items", items, capacity, _count),
        _chart(info, "Error rate", rates, allowed, formats.rate),
        _chart(info, "Fill ratio", ratios, expected, _percent),
        _chart(info, "Memory", sizes, planned, formats.size),
    ]


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _briefly(number: float, written: Written) -> str:
    """A round number, as short as possible."""
    if written is _count:
        return formats.compact(number)
    return written(number).replace(".0 ", " ")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _chart(
    info: FilterInfo, title: str, values: Sequence[float], line: _Line, written: Written
) -> Chart:
    names = [_name(info, slice) for slice in info.slices]
    highest = max(*values, line.value)
    step = _step(highest, formats.unit(highest) if written is formats.size else 1)
    steps = math.ceil(highest / step - _ROUNDING)
    top = steps * step
    limit = line.value if line.is_limit else math.inf
    return Chart(
        title=title,
        line_name=line.name,
        line_text=written(line.value),
        description=_description(names, values, line, written),
        bars=[
            Bar(
                *place,
                100 * value / top,
                100 * min(value, limit) / top,
                f"{name}: {written(value)}",
            )
            for place, value, name in zip(_places(len(values)), values, names, strict=True)
        ],
        line=100 * line.value / top,
        ticks=["0", *(_briefly(step * number, written) for number in range(1, steps + 1))],
        labels=_labels(names),
    )


def _description(
    names: Sequence[str], values: Sequence[float], line: _Line, written: Written
) -> str:
    """The chart in words, for readers who can't see it."""
    over = f"; {sum(value > line.value for value in values)} above it" if line.is_limit else ""
    return (
        f"{len(values)} slices, from {names[0]} to {names[-1]}. The highest is {written(max(values))}; "
        f"the line, {line.name}, is at {written(line.value)}{over}."
    )


def _step(highest: float, unit: int) -> float:
    """A round step between ticks, in this unit; a few steps reach the highest value."""
    least = highest / unit / _MAX_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return unit * next(power * f for f in (1, 2, 5, 10) if power * f >= least * (1 - _ROUNDING))


def _places(number: int) -> list[tuple[float, float]]:
    """Start and width of each bar. Where there are few, they don't fill the chart."""
    room = 100 / number
    width = room if number >= _DENSE else room * min(0.8, 0.1 + 0.12 * number)
    return [(room * i + (room - width) / 2, width) for i in range(number)]


def _labels(names: Sequence[str]) -> list[Label]:
    """The first, the middle and the last label: more would touch each other on a phone."""
    number = len(names)
    if number < _ANCHORED:
        chosen = range(number) if number != _ANCHORED - 1 else (0, number - 1)
        return [Label(100 * (i + 0.5) / number, "middle", names[i]) for i in chosen]
    middle = number // 2
    return [
        Label(0, "start", names[0]),
        Label(100 * (middle + 0.5) / number, "middle", names[middle]),
        Label(100, "end", names[-1]),
    ]


def _name(info: FilterInfo, slice: SliceInfo) -> str:
    """The start of the slice, as short as possible."""
    if slice.start is None or slice.end is None:
        return slice.label
    length = slice.end - slice.start
    if length >= _MONTH:
        return f"{slice.start:%b %Y}"
    if length < _DAY:
        return f"{slice.start:%d %b %H:%M}"
    year = " %Y" if length * len(info.slices) > _YEAR else ""
    return f"{slice.start:%d %b{year}}"
