"""The slices of a counter that are read: all, the newest ones, or a single one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time

from tbloom.arguments import check_at, check_within
from tbloom.distinct.config import CounterConfig
from tbloom.errors import ConfigError
from tbloom.window import WHOLE, to_ms

#: An instant, a day in the counter's time zone, or a slice's label.
At = datetime | date | str


@dataclass(frozen=True, slots=True)
class Selection:
    """Some slices of a counter: the newest ones, or the slice with this label; or all ids of its mapping."""

    config: CounterConfig
    newest: int = 1
    label: str | None = None
    is_everyone: bool = False

    def labels(self, now: int) -> list[str]:
        """Return the slices' labels, oldest first."""
        window = self.config.window
        if self.is_everyone:
            return []
        if self.label is not None or window is None:
            return [self.label or WHOLE]
        return [slice.label for slice in window.live(now)[-self.newest :]]


_NO_SLICES = "none: the counter has no slices (see granularity)"


def select(config: CounterConfig, within: int | None = None) -> Selection:
    """Return all live slices, or the newest ``within``."""
    if config.window is not None:
        return Selection(config, check_within(within, config.window.slices))
    if within is not None:
        raise ConfigError("within", within, _NO_SLICES)
    return Selection(config)


def label_of(config: CounterConfig, at: At) -> str:
    """Return the label of the slice that contains ``at``, or ``at`` if it is a label."""
    window = config.window
    if window is None:
        raise ConfigError("at", at, _NO_SLICES)
    if isinstance(at, str) and window.is_label(at):
        return at
    if not isinstance(at, date):
        example = window.slice_at(0).label
        expected = f"a slice's label such as {example!r}, a date, or a datetime with a time zone"
        raise ConfigError("at", at, expected)
    if isinstance(at, datetime):
        ends = [at]
    else:  # the day's first and its last instant
        ends = [datetime.combine(at, end, window.zone) for end in (time.min, time.max)]
    for end in ends:
        check_at(end)
    first, last = (window.slice_at(to_ms(end)).label for end in (ends[0], ends[-1]))
    if first != last:
        expected = f"a datetime: the day is in slices {first!r} to {last!r}"
        raise ConfigError("at", at, expected)
    return first
