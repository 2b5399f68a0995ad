"""What all who use a store must agree on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from tbloom.engine.parameters import differences, read_stored
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.items import FINGERPRINT_NAME
from tbloom.window import Slice, Window

LAYOUT = 1
#: The only slice of a store without slices; any instant lies in it (ms).
WHOLE = Slice("pages", -(1 << 53), 1 << 53)


class Now(NamedTuple):
    """What is live while a slice is current (ms)."""

    #: The current slice, ``end`` excluded.
    begin: int
    end: int
    #: When the oldest live slice begins.
    since: int
    #: Before this, pages may have been fetched, because clocks differ: when the slice that comes next ends.
    until: int


@dataclass(frozen=True, slots=True)
class PagesConfig:
    """For how long pages are kept; None: for ever."""

    window: Window | None

    @property
    def stored(self) -> str:
        """As it is kept, in the index and at the beginning of each segment."""
        window = self.window
        values: dict[str, Any] = {"layout": LAYOUT, "kind": "pages", "hash": FINGERPRINT_NAME}
        for name in ("granularity", "slices", "tz"):
            values[name] = getattr(window, name, None)
        return json.dumps(values, separators=(",", ":"))

    def slice_at(self, ms: int) -> Slice:
        """The slice that the instant lies in."""
        return self.window.slice_at(ms) if self.window else WHOLE

    def at(self, ms: int) -> Now:
        """What is live at the instant."""
        if self.window is None:
            return Now(WHOLE.start, WHOLE.end, WHOLE.start, WHOLE.end)
        live = self.window.live(ms)
        until = self.window.slice_at(live[-1].end).end
        return Now(live[-1].start, live[-1].end, live[0].start, until)


def given(
    granularity: str | timedelta | None, slices: int | None, tz: str | None
) -> PagesConfig | None:
    """The parameters that a caller gives, checked; None: what is stored will do."""
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
    """The stored parameters. Raises ConfigMismatch where others are given."""
    values = read_stored(stored)
    try:
        granularity = values["granularity"]
        window = Window(granularity, values["slices"], values["tz"]) if granularity else None
    except (ConfigError, KeyError):
        window = None
    config = PagesConfig(window)
    if config.stored != stored:
        raise TBloomError(f"{path!r} is a page store that this version of tbloom can't read")
    if given is not None and given.stored != stored:
        raise ConfigMismatch(path, differences(stored, given.stored), stored)
    return config
