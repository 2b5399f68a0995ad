"""Charts as SVG, readable on light and on dark pages."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE = """\
text { font-family: system-ui, sans-serif; font-size: 13px; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.note, .tick { fill: #656d76; font-size: 12px }
.own { fill: #1a7f6e } .peer { fill: #9aa4af } line { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note, .tick { fill: #8d96a0 }
  .own { fill: #3fb6a0 } .peer { fill: #59636e } line { stroke: #3d444d }
}"""
_VALUES, _ROW, _TOP = 70, 24, 62
#: The width of a digit, about.
_DIGIT = 7
#: Of a matrix: the size of a cell; the opacity of the largest number, on which text is readable, and of 0.
_WIDE, _HIGH, _STRONGEST, _FAINT = 58, 32, 0.6, 0.06
_LEFT = 64


class Bar(NamedTuple):
    """A bar of a chart."""

    label: str
    value: float
    #: The value as text.
    shown: str


def chart(
    title: str,
    note: str,
    groups: Sequence[tuple[str, Sequence[Bar]]],
    *,
    log: bool,
    width: int = 800,
    labels: int = 280,
) -> str:
    """Horizontal bars, tbloom's in colour; each group may have a heading.

    ``log``: on a logarithmic scale. ``labels``: the width of the labels.
    """
    values = [bar.value for _, bars in groups for bar in bars]
    ticks = _powers(min(values), max(values)) if log else _steps(max(values))
    low, high = ticks[0], max(values)
    room = width - labels - _VALUES

    def x(value: float) -> float:
        if log:
            return labels + room * math.log10(value / low) / math.log10(high / low)
        return labels + room * value / high

    rows: list[str] = []
    y = _TOP
    for heading, bars in groups:
        if heading:
            rows.append(_text(labels, y + 16, heading, "note"))
            y += _ROW
        for bar in bars:
            kind = "own" if bar.label.startswith("tbloom") else "peer"
            length = max(1.0, x(bar.value) - labels)
            rows += [
                _text(labels - 8, y + 16, bar.label, end=True),
                f'<rect class="{kind}" x="{labels}" y="{y + 3}" width="{length:.1f}" height="17" rx="2"/>',
                _text(labels + length + 6, y + 16, bar.shown),
            ]
            y += _ROW
        y += 8
    # Labels that are wider than the space between two lines are left out at every second one.
    space = (x(ticks[-1]) - x(low)) / max(1, len(ticks) - 1)
    named = 2 if space < _DIGIT * max(len(f"{tick:,g}") + 1 for tick in ticks) else 1
    grid = [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{_TOP - 4}" y2="{y}"/>'
        + (_text(x(tick), y + 16, f"{tick:,g}", "tick", middle=True) if n % named == 0 else "")
        for n, tick in enumerate(ticks)
    ]
    return _svg(width, y + 24, title, note, [*grid, *rows])


def matrix(
    title: str, note: str, names: Sequence[str], values: Sequence[Sequence[int]], *, width: int
) -> str:
    """A square of numbers, the larger the darker, with the same names for rows and columns."""
    largest = max(1, *(value for row in values for value in row))
    parts = []
    for index, (name, row) in enumerate(zip(names, values, strict=True)):
        y = _TOP + 24 + index * _HIGH
        parts.append(_text(_LEFT + (index + 0.5) * _WIDE, _TOP + 14, name, "note", middle=True))
        parts.append(_text(_LEFT - 8, y + 20, name, "note", end=True))
        for column, value in enumerate(row):
            shade = _FAINT + (_STRONGEST - _FAINT) * value / largest
            parts.append(_cell(_LEFT + column * _WIDE, y, value, shade))
    return _svg(width, _TOP + 32 + len(names) * _HIGH, title, note, parts)


def _cell(x: int, y: int, value: int, shade: float) -> str:
    size = f'width="{_WIDE - 3}" height="{_HIGH - 3}" rx="3"'
    return f'<rect class="own" x="{x}" y="{y}" {size} fill-opacity="{shade:.2f}"/>' + _text(
        x + _WIDE / 2, y + 20, f"{value:,}", middle=True
    )


def _svg(width: int, height: int, title: str, note: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            (
                '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
            ),
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            _text(8, 22, title, "title"),
            _text(8, 42, note, "note"),
            *parts,
            "</svg>\n",
        ]
    )


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten, starting below the lowest value, which is not at the very edge."""
    first = math.floor(math.log10(low) - 0.05)
    return [10.0**n for n in range(first, math.floor(math.log10(high)) + 1)]


def _steps(high: float) -> list[float]:
    """From 0 on, in at most 6 round steps."""
    unit = 10.0 ** math.floor(math.log10(high))
    step = next(unit * f for f in (0.2, 0.5, 1, 2) if unit * f * 6 >= high)
    return [step * n for n in range(math.floor(high / step) + 1)]


def _text(
    x: float, y: float, text: str, kind: str = "", *, end: bool = False, middle: bool = False
) -> str:
    anchor = ' text-anchor="end"' if end else ' text-anchor="middle"' if middle else ""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}{anchor}>{escape(text)}</text>'
