"""What of a counter is counted: all of it, its newest slices, or a certain one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tbloom.arguments import check_at, check_within
from tbloom.distinct.config import WHOLE, CounterConfig
from tbloom.errors import ConfigError
from tbloom.window import Slice, to_ms


@dataclass(frozen=True, slots=True)
class Selection:
    """Some slices of a counter: the newest ones, or the one with this label."""

    config: CounterConfig
    newest: int = 1
    label: str | None = None

    def labels(self, now: int) -> list[str]:
        """The slices' labels, oldest first."""
        window = self.config.window
        if self.label is not None or window is None:
            return [self.label or WHOLE]
        return [slice.label for slice in window.live(now)[-self.newest :]]

    def current(self, now: int) -> Slice | None:
        """The slice that must be current for ``labels`` to be right; None: they always are."""
        window = self.config.window
        return window.slice_at(now) if self.label is None and window is not None else None


def select(
    config: CounterConfig, within: int | None = None, at: datetime | str | None = None
) -> Selection:
    """All live slices; the newest ``within``; or the one that ``at`` lies in, or that is called so."""
    window = config.window
    if window is None:
        if within is not None or at is not None:
            argument, value = ("within", within) if within is not None else ("at", at)
            raise ConfigError(argument, value, "none: the counter has no slices (see granularity)")
        return Selection(config)
    if at is None:
        return Selection(config, check_within(within, window.slices))
    if isinstance(at, str):
        if not at.isascii() or not at.isalnum():
            raise ConfigError("at", at, "a slice's label such as '20261120', or a datetime")
        return Selection(config, label=at)
    instant = check_at(at)
    return Selection(config, label=window.slice_at(to_ms(instant)).label)  # type: ignore[arg-type]
