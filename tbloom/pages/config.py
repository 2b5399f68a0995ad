"""The parameters that all users of a store must agree on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tbloom.engine.parameters import differences, read_stored
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.items import FINGERPRINT_NAME
from tbloom.pages import calendar
from tbloom.window import Slice, Window, from_ms, to_ms

LAYOUT = 1
#: The only slice of a store without slices; any instant lies in it (ms).
WHOLE = Slice("pages", -(1 << 53), 1 << 53)


@dataclass(frozen=True, slots=True)
class PagesConfig:
    """The window of a store; None: pages are kept for ever."""

    window: Window | None

    @property
    def stored(self) -> str:
        """The parameters as text, for the index and the start of each segment."""
        window = self.window
        values: dict[str, Any] = {"layout": LAYOUT, "kind": "pages", "hash": FINGERPRINT_NAME}
        for name in ("granularity", "slices", "tz"):
            values[name] = getattr(window, name, None)
        return json.dumps(values, separators=(",", ":"))

    def since(self) -> int:
        """The start of the oldest live slice (ms)."""
        return self.window.live(to_ms(calendar.now()))[0].start if self.window else WHOLE.start

    def slice_of(self, at: datetime) -> Slice:
        """The slice of a page that was fetched at ``at``. Raises ConfigError where it is not kept."""
        if self.window is None:
            return WHOLE
        ms, live = to_ms(at), self.window.live(to_ms(calendar.now()))
        if ms < live[0].start:
            expected = f"a time within the window, from {from_ms(live[0].start).isoformat()} on"
            raise ConfigError("at", at.isoformat(), expected)
        # Pages may have been fetched in the next slice, because clocks differ.
        if ms >= live[-1].end and ms >= (until := self.window.slice_at(live[-1].end).end):
            expected = f"a time before the next slice ends, at {from_ms(until).isoformat()}"
            raise ConfigError("at", at.isoformat(), expected)
        return self.window.slice_at(ms)

    def slice_at(self, ms: int) -> Slice:
        """The slice of an instant."""
        return self.window.slice_at(ms) if self.window else WHOLE


def given(
    granularity: str | timedelta | None, slices: int | None, tz: str | None
) -> PagesConfig | None:
    """The parameters that a user gives, checked; None: those of the store."""
    if granularity is None:
        for name, value in (("slices", slices), ("tz", tz)):
            if value is not None:
                expected = f"a period such as 'd', because {name} is given"
                raise ConfigError("granularity", None, expected)
        return None
    if slices is None:
        raise ConfigError("slices", None, "a whole number, because granularity is given")
    return PagesConfig(Window(granularity, slices, "UTC" if tz is None else tz))


def agreed(path: str, stored: str, given: PagesConfig | None) -> PagesConfig:
    """The stored parameters. Raises ConfigMismatch where the given ones differ."""
    values = read_stored(stored)
    try:
        granularity = values["granularity"]
        window = Window(granularity, values["slices"], values["tz"]) if granularity else None
    except (ConfigError, KeyError):
        window = None
    config = PagesConfig(window)
    if config.stored != stored:
        raise TBloomError(
            f"{path!r} is a page store that this version of tbloom can't read; if its index is damaged, make it anew "
            "with 'tbloom pages rebuild'"
        )
    if given is not None and given.stored != stored:
        remedy = "give the same, or take another path"
        raise ConfigMismatch(path, differences(stored, given.stored), stored, remedy)
    return config
