"""The part of a counter that is read: all of it, its newest slices, those of a period, or one slice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tbloom.distinct.config import CounterConfig
from tbloom.errors import ConfigError
from tbloom.items import check_at, check_within
from tbloom.window import WHOLE, Slice, to_ms


@dataclass(frozen=True, slots=True)
class Selection:
    """Some slices of a counter: of the newest ones, those from ``first`` to ``last``; or the one with this label."""

    config: CounterConfig
    newest: int = 1
    label: str | None = None
    first: str = ""
    last: str = "~"

    def labels(self, now: int) -> list[str]:
        """The slices' labels, oldest first."""
        window = self.config.window
        if self.label is not None or window is None:
            return [self.label or WHOLE]
        labels = [slice.label for slice in window.live(now, self.newest)]
        return [label for label in labels if self.first <= label <= self.last]

    def current(self, now: int) -> Slice | None:
        """The slice that must be current so that ``labels`` is right; None: it is always right."""
        window = self.config.window
        return window.slice_at(now) if self.label is None and window is not None else None


_NO_SLICES = "none: the counter has no slices (see granularity)"


def select(config: CounterConfig, within: int | None = None) -> Selection:
    """All live slices, or the newest ``within``."""
    if config.window is not None:
        return Selection(config, check_within(within, config.window.slices))
    if within is not None:
        raise ConfigError("within", within, _NO_SLICES)
    return Selection(config)


def select_at(config: CounterConfig, at: datetime | str) -> Selection:
    """The slice that contains ``at``, or that has this label."""
    return Selection(config, label=_label(config, "at", at))


def select_between(config: CounterConfig, start: datetime | str, end: datetime | str) -> Selection:
    """The live slices from the one that contains ``start``, or has this label, to the one of ``end``."""
    first, last = _label(config, "start", start), _label(config, "end", end)
    if first > last:
        raise ConfigError("end", end, f"the slice of start, {first!r}, or a later one")
    return replace(select(config), first=first, last=last)


def _label(config: CounterConfig, argument: str, at: datetime | str) -> str:
    """The label of the slice that contains ``at``; or ``at``, if it is a label."""
    if config.window is None:
        raise ConfigError(argument, at, _NO_SLICES)
    if isinstance(at, str) and config.window.is_label(at):
        return at
    instant = None if isinstance(at, str) else check_at(at, argument)
    if instant is None:
        example = config.window.slice_at(0).label
        raise ConfigError(argument, at, f"a slice's label such as {example!r}, or a datetime")
    return config.window.slice_at(to_ms(instant)).label
