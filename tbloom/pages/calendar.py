"""The slices that are live now, by this machine's clock."""

from __future__ import annotations

from datetime import datetime, timezone

from tbloom.errors import ConfigError
from tbloom.pages.config import Now, PagesConfig
from tbloom.window import Slice, from_ms, to_ms


def now() -> datetime:
    """The time. (Tests replace it.)"""
    return datetime.now(timezone.utc)


class Calendar:
    """The window of a store, now."""

    __slots__ = ("_now", "config")

    def __init__(self, config: PagesConfig) -> None:
        self.config = config
        self._now = Now(1, 0, 0, 0)

    def since(self) -> int:
        """The start of the oldest live slice (ms)."""
        return self._look().since

    def slice_of(self, at: datetime) -> Slice:
        """The slice of a page that was fetched at ``at``. Raises ConfigError where it is not kept."""
        ms, (_, _, since, until) = to_ms(at), self._look()
        if ms < since:
            expected = f"a time within the window, from {from_ms(since).isoformat()} on"
            raise ConfigError("at", at.isoformat(), expected)
        if ms >= until:
            expected = f"a time before the next slice ends, at {from_ms(until).isoformat()}"
            raise ConfigError("at", at.isoformat(), expected)
        return self.config.slice_at(ms)

    def _look(self) -> Now:
        ms, known = to_ms(now()), self._now
        if not known.begin <= ms < known.end:
            known = self._now = self.config.at(ms)
        return known
