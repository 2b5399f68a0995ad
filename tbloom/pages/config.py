"""The parameters that all users of a store must agree on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tbloom.engine.parameters import differences, read_stored
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.items import FINGERPRINT_NAME
from tbloom.window import Slice, Window

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
