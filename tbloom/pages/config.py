"""The parameters that all users of a store must agree on."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tbloom.arguments import FINGERPRINT_NAME
from tbloom.engine.parameters import check_format, differences, read_stored
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.pages import clock
from tbloom.window import ALWAYS, NoWindow, Slice, Window, from_ms, to_ms, window_of

LAYOUT = 1
_NAMES = ("granularity", "slices", "tz")


@dataclass(frozen=True, slots=True)
class PagesConfig:
    """The window of a store."""

    window: Window

    @property
    def stored(self) -> str:
        """The parameters as text, as the index and the first record of each segment store them."""
        values: dict[str, Any] = {"layout": LAYOUT, "kind": "pages", "hash": FINGERPRINT_NAME}
        values |= {name: getattr(self.window, name) for name in _NAMES}
        return json.dumps(values, separators=(",", ":"))

    def since(self) -> int:
        """Return the start of the oldest live slice (ms)."""
        return self.window.live(to_ms(clock.now()))[0].start

    def slice_of(self, at: datetime) -> Slice:
        """Return the slice of a page that was fetched at ``at``. Raise ConfigError if ``at`` is outside the window."""
        if isinstance(self.window, NoWindow):
            return ALWAYS
        ms, live = to_ms(at), self.window.live(to_ms(clock.now()))
        if live[0].start <= ms < live[-1].end:
            return self.window.slice_at(ms)
        # Clocks differ: a page may have been fetched by a machine whose next slice has begun.
        ahead = self.window.slice_at(live[-1].end)
        if ahead.start <= ms < ahead.end:
            return ahead
        first, end = (from_ms(each).isoformat() for each in (live[0].start, ahead.end))
        raise ConfigError("at", at.isoformat(), f"a time in the window, from {first} to {end}")


def from_arguments(
    granularity: str | timedelta | None, slices: int | None, tz: str | None
) -> PagesConfig | None:
    """Return the parameters that a user gives, checked; None if they are left to the store."""
    if granularity is None:
        if slices is None and tz is None:
            return None
        expected = "a period such as 'd', because slices or tz is given"
        raise ConfigError("granularity", None, expected)
    if slices is None:  # when pages are deleted is not ours to choose
        raise ConfigError("slices", None, "a whole number, because granularity is given")
    return PagesConfig(Window(granularity, slices, "UTC" if tz is None else tz))


def from_stored(path: str, stored: str, wanted: PagesConfig | None) -> PagesConfig:
    """Return the parameters that a store has as text. Raise ConfigMismatch if others are wanted, or if they have another format."""
    check_format(path, stored, LAYOUT)
    values, config = read_stored(stored), None
    with suppress(ConfigError, KeyError):
        config = PagesConfig(window_of(*(values[name] for name in _NAMES)))
    if config is None or config.stored != stored:
        raise TBloomError(
            f"{path!r} is a page store that this version of tbloom can't read; if its index is damaged, make a new one "
            "with 'tbloom pages rebuild'"
        )
    if wanted is not None and wanted.stored != stored:
        remedy = "give the same, or take another path"
        raise ConfigMismatch(path, differences(stored, wanted.stored), stored, remedy)
    return config
