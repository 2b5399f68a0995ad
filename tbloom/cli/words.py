"""How commands write numbers, times and shares for people."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_KB = 1024
_MINUTES_FROM = 119.5
_UNITS = ("B", "KB", "MB", "GB", "TB")


def size(number: float) -> str:
    """Bytes: ``3.2 MB`` (a MB is 1024 * 1024)."""
    for unit in _UNITS[:-1]:
        if abs(number) < _KB:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= _KB
    return f"{number:.1f} {_UNITS[-1]}"


def rate(chance: float) -> str:
    """An error rate: ``8.3e-06``, or 0."""
    return f"{chance:.1e}" if chance else "0"


def duration(seconds: float) -> str:
    """A time to the nearest second, or from two minutes on to the nearest minute: ``90 s``, ``2 min``."""
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM else f"{seconds / 60:.0f} min"


def bar(share: float, width: int = 10) -> str:
    """A share, from 0 to 1, as a bar of so many characters."""
    eighths = round(min(max(share, 0), 1) * width * 8)
    full, rest = divmod(eighths, 8)
    return (_BLOCKS[8] * full + (_BLOCKS[rest] if rest else "")).ljust(width)


def sparkline(numbers: list[float]) -> str:
    """A character for each number, as high as it is beside the largest."""
    most = max(numbers, default=0) or 1
    return "".join(_SPARKS[min(7, int(8 * number / most))] for number in numbers)


def moment(at: datetime | None) -> str:
    """A time to the nearest minute, in its own zone."""
    return "" if at is None else f"{at + timedelta(seconds=30):%Y-%m-%d %H:%M}"
