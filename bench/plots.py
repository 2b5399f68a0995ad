"""Bar charts as SVG, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_STYLE = """\
text { font-family: system-ui, sans-serif; font-size: 13px; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.note, .tick { fill: #656d76; font-size: 12px }
.own { fill: #1a7f6e } .peer { fill: #9aa4af } line { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note, .tick { fill: #8d96a0 }
  .own { fill: #3fb6a0 } .peer { fill: #59636e } line { stroke: #3d444d }
}"""
_WIDTH, _LABELS, _VALUES, _ROW, _TOP = 800, 280, 60, 24, 62


class Bar(NamedTuple):
    label: str
    value: float
    shown: str


def chart(title: str, note: str, groups: Sequence[tuple[str, Sequence[Bar]]], *, log: bool) -> str:
    """Horizontal bars, tbloom's in colour; each group may have a heading. ``log``: on a logarithmic scale."""
    values = [bar.value for _, bars in groups for bar in bars]
    ticks = _powers(min(values), max(values)) if log else _steps(max(values))
    low, high = ticks[0], max(values)
    room = _WIDTH - _LABELS - _VALUES

    def x(value: float) -> float:
        if log:
            return _LABELS + room * math.log10(value / low) / math.log10(high / low)
        return _LABELS + room * value / high

    rows: list[str] = []
    y = _TOP
    for heading, bars in groups:
        if heading:
            rows.append(_text(_LABELS, y + 16, heading, "note"))
            y += _ROW
        for bar in bars:
            kind = "own" if bar.label.startswith("tbloom") else "peer"
            width = max(1.0, x(bar.value) - _LABELS)
            rows += [
                _text(_LABELS - 8, y + 16, bar.label, end=True),
                f'<rect class="{kind}" x="{_LABELS}" y="{y + 3}" width="{width:.1f}" height="17" rx="2"/>',
                _text(_LABELS + width + 6, y + 16, bar.shown),
            ]
            y += _ROW
        y += 8
    grid = [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{_TOP - 4}" y2="{y}"/>'
        + _text(x(tick), y + 16, f"{tick:,g}", "tick", middle=True)
        for tick in ticks
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 24}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            _text(8, 22, title, "title"),
            _text(8, 42, note, "note"),
            *grid,
            *rows,
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
