"""Numbers, times and proportions as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

_KIB = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
#: The calendar's granularities.
PERIODS = {"h": "an hour", "d": "a day", "w": "a week", "m": "a month"}


def size(number: float | None) -> str:
    """Return a number of bytes: ``3.2 MiB``; ``unknown`` if the server refuses to tell."""
    if number is None:
        return "unknown"
    power = 0
    while abs(number) >= _KIB and power < len(_UNITS) - 1:
        number, power = number / _KIB, power + 1
    return f"{number:.{1 if power else 0}f} {_UNITS[power]}"


def rate(chance: float) -> str:
    """Return an error rate: ``8.3e-06``, or 0."""
    return f"{chance:.1e}" if chance else "0"


def moment(at: datetime | None) -> str:
    """Return a time to the nearest minute, in its own zone; for a midnight, its day."""
    return (
        "" if at is None else f"{at + timedelta(seconds=30):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    )


def age(seconds: float) -> str:
    """Return a time as a short text: ``67 s``, ``117 min``, ``47 h`` or ``30 d``."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 page``, ``2,000 pages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def window(slices: int, granularity: str | None) -> str:
    """Return a window: ``7 x d``."""
    return "never forgets" if granularity is None else f"{slices} x {granularity}"


def printable(text: str) -> str:
    """Return text with control characters escaped, because a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
