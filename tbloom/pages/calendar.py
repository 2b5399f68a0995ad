"""Which slices are live now, by this machine's clock."""

from __future__ import annotations

from datetime import datetime, timezone

from tbloom.errors import ConfigError
from tbloom.pages.config import PagesConfig
from tbloom.window import Slice, from_ms, to_ms

#: So far ahead of the clock the times of pages may be (ms).
_AHEAD = 86_400_000


def now() -> datetime:
    """What time it is."""
    return datetime.now(timezone.utc)


class Calendar:
    """The window of a store, as time goes by."""

    __slots__ = ("_begin", "_end", "_since", "config")

    def __init__(self, config: PagesConfig) -> None:
        self.config = config
        self._begin, self._end, self._since = 1, 0, 0

    def since(self) -> int:
        """When the oldest live slice begins (ms)."""
        at = to_ms(now())
        if not self._begin <= at < self._end:
            current, oldest = self.config.slice_at(at), self.config.oldest(at)
            self._begin, self._end, self._since = current.start, current.end, oldest.start
        return self._since

    def slice_of(self, at: datetime) -> Slice:
        """The slice of a page that was fetched then; raises ConfigError where it is not kept."""
        ms, since = to_ms(at), self.since()
        if ms < since:
            expected = f"a time within the window, from {from_ms(since).isoformat()} on"
            raise ConfigError("at", at.isoformat(), expected)
        if ms > to_ms(now()) + _AHEAD:
            expected = "a time at most a day ahead of this machine's clock"
            raise ConfigError("at", at.isoformat(), expected)
        return self.config.slice_at(ms)
