"""The slices that are live now, by this machine's clock."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from tbloom.errors import ConfigError
from tbloom.pages.config import WHOLE, PagesConfig
from tbloom.window import Slice, from_ms, to_ms


def now() -> datetime:
    """The time. (Tests replace it.)"""
    return datetime.now(timezone.utc)


class _Live(NamedTuple):
    """The live slices while one slice is current (ms)."""

    #: The current slice, ``end`` excluded.
    begin: int
    end: int
    #: The start of the oldest live slice.
    since: int
    #: The end of the next slice. Pages may have been fetched up to then, because clocks differ.
    until: int


class Calendar:
    """The window of a store, now."""

    __slots__ = ("_live", "config")

    def __init__(self, config: PagesConfig) -> None:
        self.config = config
        self._live = _Live(1, 0, 0, 0)

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

    def _look(self) -> _Live:
        ms, known = to_ms(now()), self._live
        if known.begin <= ms < known.end:
            return known
        window = self.config.window
        if window is None:
            begin = since = WHOLE.start
            end = until = WHOLE.end
        else:
            live = window.live(ms)
            begin, end, since = live[-1].start, live[-1].end, live[0].start
            until = window.slice_at(end).end
        self._live = _Live(begin, end, since, until)
        return self._live
