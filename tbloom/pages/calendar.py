"""The slices that are live now, by this machine's clock."""

from __future__ import annotations

from datetime import datetime, timezone

from tbloom.errors import ConfigError
from tbloom.pages.config import WHOLE, PagesConfig
from tbloom.window import Slice, from_ms, to_ms


def now() -> datetime:
    """The time. (Tests replace it.)"""
    return datetime.now(timezone.utc)


class Calendar:
    """The window of a store, now."""

    __slots__ = ("config",)

    def __init__(self, config: PagesConfig) -> None:
        self.config = config

    def since(self) -> int:
        """The start of the oldest live slice (ms)."""
        window = self.config.window
        return window.live(to_ms(now()))[0].start if window else WHOLE.start

    def slice_of(self, at: datetime) -> Slice:
        """The slice of a page that was fetched at ``at``. Raises ConfigError where it is not kept."""
        window = self.config.window
        if window is None:
            return WHOLE
        ms, live = to_ms(at), window.live(to_ms(now()))
        if ms < live[0].start:
            expected = f"a time within the window, from {from_ms(live[0].start).isoformat()} on"
            raise ConfigError("at", at.isoformat(), expected)
        # Pages may have been fetched in the next slice, because clocks differ.
        if ms >= live[-1].end and ms >= (until := window.slice_at(live[-1].end).end):
            expected = f"a time before the next slice ends, at {from_ms(until).isoformat()}"
            raise ConfigError("at", at.isoformat(), expected)
        return window.slice_at(ms)
