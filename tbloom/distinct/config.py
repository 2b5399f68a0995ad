"""The parameters that all clients of a mapping, or of one of its counters, must agree on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tbloom.engine.keys import Keys, check_name
from tbloom.engine.parameters import differences, read_stored
from tbloom.errors import ConfigError
from tbloom.items import FINGERPRINT_NAME
from tbloom.window import Slice, Window

KIND = "mapping"
LAYOUT = 1
#: A mapping's parameters as the server stores them.
STORED_MAPPING = json.dumps(
    {"layout": LAYOUT, "kind": KIND, "hash": FINGERPRINT_NAME}, separators=(",", ":")
)
#: The label of the only slice of a counter without slices.
WHOLE = "all"
#: That slice, which contains any instant (ms).
ALWAYS = Slice(WHOLE, 0, 1 << 53)
#: The limit of ids in a mapping.
MAX_MEMBERS = 1 << 32
#: The parameters of a counter's slices.
PARAMETERS = ("granularity", "slices", "tz")


@dataclass(frozen=True, slots=True)
class CounterConfig:
    """The parameters of one counter; raises ConfigError for impossible ones."""

    name: str
    mapping: str = "ids"
    granularity: str | timedelta | None = None
    slices: int | None = None
    tz: str = "UTC"
    #: None: the counter has no slices.
    window: Window | None = field(init=False, repr=False, compare=False)
    keys: Keys = field(init=False, repr=False, compare=False)
    #: The parameters as the server stores them.
    stored: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.mapping, "mapping")
        window = None
        if self.granularity is not None:
            if self.slices is None:
                raise ConfigError("slices", None, "a whole number, because granularity is given")
            window = Window(self.granularity, self.slices, self.tz)
        elif self.slices is not None:
            raise ConfigError("granularity", None, "a period such as 'd', because slices is given")
        elif self.tz != "UTC":
            raise ConfigError("tz", self.tz, "none, because granularity is not given")
        values = {name: getattr(window, name) for name in PARAMETERS} if window else {}
        for name, value in values.items():  # in their canonical spelling
            object.__setattr__(self, name, value)
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "keys", Keys(self.mapping))
        object.__setattr__(self, "stored", json.dumps(values, separators=(",", ":")))

    def differences(self, stored: str) -> dict[str, tuple[Any, Any]]:
        """The parameters that differ from ``stored``: (stored, ours)."""
        return differences(stored, self.stored)


def mapping_differences(stored: str) -> dict[str, tuple[Any, Any]]:
    """The parameters of a mapping that differ from ``stored``: (stored, ours)."""
    return differences(stored, STORED_MAPPING)


def from_stored(name: str | bytes, mapping: str, stored: str) -> CounterConfig:
    """The parameters of a stored counter; raises ConfigError if they can't be read, or if the name is no counter's."""
    values = read_stored(stored)
    try:
        # No replacement for bytes that are not UTF-8: a counter of that name is another one.
        name = name if isinstance(name, str) else name.decode()
        config = CounterConfig(name, mapping, **values)
    except (ConfigError, TypeError, UnicodeDecodeError):
        config = None
    if config is None or config.stored != stored:  # the scripts compare texts
        place = f"{name!r} in {Keys(mapping).counters()!r}"
        expected = "the name and the parameters of a counter that this version of tbloom can read (HDEL it, and then clear() the counter in Python)"
        raise ConfigError(place, stored, expected)
    return config
