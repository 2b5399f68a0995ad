"""The slices of a window: the live ones at an instant, the time at which each leaves, and their labels.

This is calendar arithmetic without a clock: instants are arguments, in milliseconds since the Unix epoch.

================  ==========================================  ====================
granularity       a slice                                     label
================  ==========================================  ====================
``h``             an hour on the zone's clocks                ``2019050813``
``d``             a day there                                 ``20190508``
``w``             an ISO week there, from Monday              ``2019W19``
``m``             a month there                               ``201905``
``"15min"``, ...  a fixed length, counted from the epoch      ``20190508T131500``
================  ==========================================  ====================

Labels sort as their slices do and never repeat. When clocks go back, a repeated hour
gets a letter: ``2019102702``, then ``2019102702b``, then ``2019102703``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tbloom.errors import ConfigError

MAX_SLICES = 1024
_MAX_WINDOW = timedelta(days=36525)  # a century
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_HOUR = 3_600_000
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST = {"h": 1 / 24, "d": 1, "w": 7, "m": 31}  # days
#: The label of the only slice of a store without a window.
WHOLE = "all"
_LABELS = {"h": r"\d{10}[b-z]?", "d": r"\d{8}", "w": r"\d{4}W\d\d", "m": r"\d{6}", WHOLE: WHOLE}
_FIXED = r"\d{8}T\d{6}"
_GRANULARITIES = (
    "'h', 'd', 'w', 'm', a whole number of seconds or more such as '90s', '15min', '2h', '3d', "
    "or a timedelta of whole seconds"
)


@dataclass(frozen=True, slots=True)
class Slice:
    """One period of time: from ``start`` up to, not including, ``end`` (ms)."""

    label: str
    start: int
    end: int


#: The only slice of a store without a window. Any instant lies in it, and scripts set no expiry for its end.
ALWAYS = Slice(WHOLE, 0, 999_999_999_999_999)


class Period(NamedTuple):
    """One slice, for people: from ``start`` up to, not including, ``end``, in the store's time zone.

    Without a window, ``start`` and ``end`` are None.
    """

    label: str
    start: datetime | None
    end: datetime | None


def to_ms(at: datetime) -> int:
    """Return an aware datetime in milliseconds since the epoch."""
    return (at - _EPOCH) // _MS


def from_ms(ms: int, zone: tzinfo = UTC) -> datetime:
    """Return the aware datetime that is ``ms`` milliseconds since the epoch, in this time zone."""
    return (_EPOCH + ms * _MS).astimezone(zone)


def parse_granularity(granularity: str | timedelta) -> str:
    """Return the canonical spelling of a granularity: ``"h"``, ``"d"``, ``"w"``, ``"m"``, or seconds such as ``"900s"``."""
    length = timedelta(0)
    if isinstance(granularity, timedelta):
        length = granularity
    elif isinstance(granularity, str):
        if granularity in _LONGEST:
            return granularity
        if match := re.fullmatch(r"(\d{1,9})(s|min|h|d|w)", granularity, re.ASCII):
            with suppress(OverflowError):
                length = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    seconds, rest = divmod(length, timedelta(seconds=1))
    if seconds < 1 or rest:
        raise ConfigError("granularity", granularity, _GRANULARITIES)
    return f"{seconds}s"


def parse_zone(tz: str) -> tzinfo:
    """Return the time zone of an IANA name."""
    if tz == "UTC":  # needs no zone database, which slim images lack
        return UTC
    expected = "an IANA time zone such as 'Europe/Berlin' (on a system without a zone database: pip install tzdata)"
    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError, TypeError, AttributeError):
        raise ConfigError("tz", tz, expected) from None


class Window:
    """The newest ``slices`` periods of one granularity, in one time zone.

    ``granularity`` and ``tz`` are kept in their canonical spelling; a fixed
    length has no zone, so its ``tz`` is ``"UTC"``. ``NoWindow`` has None as granularity.
    """

    def __init__(self, granularity: str | timedelta, slices: int, tz: str = "UTC") -> None:
        self.granularity: str | None = parse_granularity(granularity)
        self._unit = self.granularity
        zone = parse_zone(tz)
        fixed = self._unit.endswith("s")
        self._length = int(self._unit[:-1]) * 1000 if fixed else 0
        #: The time zone that slices begin and end in.
        self.zone: tzinfo = UTC if fixed else zone
        self.tz: str = "UTC" if fixed else tz
        if not isinstance(slices, int) or isinstance(slices, bool) or not 1 <= slices <= MAX_SLICES:
            raise ConfigError("slices", slices, f"a whole number from 1 to {MAX_SLICES}")
        days = self._length / 86_400_000 or _LONGEST[self._unit]
        if days * slices > _MAX_WINDOW.days:
            raise ConfigError("slices", slices, "a window of at most 100 years")
        self.slices = slices
        #: The live slices of the last call that asked for them.
        self._live: list[Slice] = []

    def period(self, slice: Slice) -> Period:
        """Return the slice, for people."""
        return Period(slice.label, from_ms(slice.start, self.zone), from_ms(slice.end, self.zone))

    def is_label(self, text: str) -> bool:
        """Return True if the text can be a slice's label."""
        return re.fullmatch(_LABELS.get(self._unit, _FIXED), text, re.ASCII) is not None

    def slice_at(self, ms: int) -> Slice:
        """Return the slice that the instant lies in."""
        if self._length:
            start = ms - ms % self._length
            label = from_ms(start).strftime("%Y%m%dT%H%M%S")
            return Slice(label, start, start + self._length)
        return self._hour(ms) if self._unit == "h" else self._period(ms)

    def live(self, ms: int) -> list[Slice]:
        """Return the live slices at an instant, oldest first; the last one is current."""
        known = self._live
        if known and known[-1].start <= ms < known[-1].end:
            return [*known]
        slices = [self.slice_at(ms)]
        while len(slices) < self.slices:
            slices.append(self.slice_at(slices[-1].start - 1))
        self._live = slices[::-1]
        return slices[::-1]

    def ahead(self, ms: int) -> list[Slice]:
        """Return as many slices after the current one as are live.

        Their keys exist if they began before the clock was set back.
        """
        slices = [self.slice_at(ms)]
        while len(slices) <= self.slices:
            slices.append(self.slice_at(slices[-1].end))
        return slices[1:]

    def expires(self, slice: Slice) -> int:
        """Return when the slice leaves the window (ms): when the ``slices``-th slice after it begins."""
        for _ in range(self.slices - 1):
            slice = self.slice_at(slice.end)
        return slice.end

    def _period(self, ms: int) -> Slice:
        """Return the day, week or month that the instant lies in.

        It begins at midnight; if clocks go back and give two midnights, at the first. A day that a zone
        skipped (Samoa, 30 December 2011) is empty, so no instant lies in it.
        """
        first = self._floor(from_ms(ms, self.zone).date())
        while self._midnight(first) > ms:
            first = self._floor(first - timedelta(days=1))
        after = self._next(first)
        while self._midnight(after) <= ms:
            first, after = after, self._next(after)
        label = first.strftime({"d": "%Y%m%d", "w": "%GW%V", "m": "%Y%m"}[self._unit])
        return Slice(label, self._midnight(first), self._midnight(after))

    def _floor(self, day: date) -> date:
        if self._unit == "w":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self._unit == "m" else day

    def _next(self, first: date) -> date:
        return self._floor(first + timedelta(days={"d": 1, "w": 7, "m": 31}[self._unit]))

    def _midnight(self, day: date) -> int:
        # fold=0: the first of two midnights; for a skipped one, the instant of the jump.
        return to_ms(datetime(day.year, day.month, day.day, tzinfo=self.zone))

    def _hour(self, ms: int) -> Slice:
        """Return the hour between two full hours on the zone's clocks, cut at a change of the clocks."""
        offset = self._offset(ms)
        start = ms - (ms + offset // _MS) % _HOUR
        end = start + _HOUR
        if self._offset(start) != offset:
            start = self._clock_change(start, ms)
        if self._offset(end - 1) != offset:
            end = self._clock_change(ms, end - 1)
        local, before = from_ms(start, self.zone), from_ms(start - 1, self.zone)
        label = local.strftime("%Y%m%d%H")
        if local.fold or before.strftime("%Y%m%d%H") == label:
            previous = self._hour(start - 1).label
            label = previous[:10] + chr(ord(previous[10:] or "a") + 1)
        return Slice(label, start, end)

    def _offset(self, ms: int) -> timedelta:
        return from_ms(ms, self.zone).utcoffset() or timedelta(0)

    def _clock_change(self, low: int, high: int) -> int:
        """Return the first instant in (low, high] with another UTC offset than ``low``."""
        offset, after = self._offset(low), range(low + 1, high)
        return low + 1 + bisect_left(after, x=True, key=lambda ms: self._offset(ms) != offset)


class NoWindow(Window):
    """One slice that any instant lies in, and that never ends."""

    def __init__(self) -> None:
        self.granularity: str | None = None
        self.slices: int = 1
        self.tz: str = "UTC"
        self.zone: tzinfo = UTC
        self._unit, self._live = WHOLE, []

    def slice_at(self, ms: int) -> Slice:  # noqa: ARG002
        """Return the only slice."""
        return ALWAYS

    def ahead(self, ms: int) -> list[Slice]:  # noqa: ARG002
        """Return an empty list, because no slice follows."""
        return []

    def period(self, slice: Slice) -> Period:
        """Return the slice, for people."""
        return Period(slice.label, None, None)


def window_of(granularity: str | timedelta | None, slices: int | None, tz: str) -> Window:
    """Return the window with these parameters; with None as granularity, a ``NoWindow``."""
    if granularity is None:
        for name, value, expected in (("slices", slices, (None, 1)), ("tz", tz, ("UTC",))):
            if value not in expected or isinstance(value, bool):
                raise ConfigError(name, value, "none, because granularity is None")
        return NoWindow()
    return Window(granularity, 7 if slices is None else slices, tz)
