"""Numbers, times and proportions as people read them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from datetime import datetime

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_KB = 1024
_MINUTES_FROM, _HOURS_FROM = 119.5, 119.5 * 60
_UNCOUNTABLE, _MILLION, _TENS = 1e9, 1e6, 9.95
_K = 1000
_THOUSANDS = ("", "k", "M", "G", "T")
_UNITS = ("B", "KB", "MB", "GB", "TB")


def size(number: float) -> str:
    """Bytes: ``3.2 MB`` (a MB is 1024 * 1024)."""
    power = _power(number)
    return f"{number / _KB**power:.{1 if power else 0}f} {_UNITS[power]}"


def rate(chance: float) -> str:
    """An error rate: ``8.3e-06``, or 0."""
    return f"{chance:.1e}" if chance else "0"


def duration(seconds: float) -> str:
    """A time to the nearest second, from two minutes on to the nearest minute, then hour: ``90 s``, ``2 min``, ``5 h``."""
    if seconds >= _HOURS_FROM:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM else f"{seconds / 60:.0f} min"


def compact(number: float) -> str:
    """A round number: ``500``, ``25 k``, ``1.5 M``."""
    power = 0
    while number >= _K and power < len(_THOUSANDS) - 1:
        number, power = number / _K, power + 1
    return f"{number:.15g} {_THOUSANDS[power]}".rstrip()


def one_in(chance: float) -> str:
    """A probability: ``1 in 12,000``, ``1 in 85 M``, to two digits."""
    if not chance:
        return "none"
    times = 1 / chance
    if times >= _UNCOUNTABLE:
        return "1 in over 1 G"
    rounded = float(f"{times:.1e}")
    if rounded >= _MILLION:
        return f"1 in {compact(rounded)}"
    return f"1 in {rounded:,.{0 if times >= _TENS else 1}f}"


def bar(proportion: float, width: int = 10) -> str:
    """A proportion, from 0 to 1, as a bar of ``width`` characters."""
    eighths = round(min(max(proportion, 0), 1) * width * 8)
    full, rest = divmod(eighths, 8)
    return (_BLOCKS[8] * full + (_BLOCKS[rest] if rest else "")).ljust(width)


def sparkline(numbers: list[float]) -> str:
    """A character for each number; its height is the proportion to the largest."""
    largest = max(numbers, default=0) or 1
    return "".join(_SPARKS[min(7, int(8 * number / largest))] for number in numbers)


def moment(at: datetime | None) -> str:
    """A time to the nearest minute, in its own zone."""
    return "" if at is None else f"{at + timedelta(seconds=30):%Y-%m-%d %H:%M}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 page``, ``2,000 pages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def columns_of(text: str) -> int:
    """The columns that a text takes on a terminal: wide characters, as of Chinese, take two, accents none."""
    if text.isascii():
        return len(text)
    return sum((east_asian_width(c) in "FW") + (not combining(c)) for c in text)


def printable(text: str) -> str:
    """Foreign text, with the terminal's control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _power(number: float) -> int:
    power = 0
    while abs(number) >= _KB and power < len(_UNITS) - 1:
        number, power = number / _KB, power + 1
    return power


#: The calendar's granularities.
PERIODS = {"h": "an hour", "d": "a day", "w": "a week", "m": "a month"}


def window(slices: int, granularity: str | None) -> str:
    """A window: ``7 x d``."""
    return "never forgets" if granularity is None else f"{slices} x {granularity}"
