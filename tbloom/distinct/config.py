"""The parameters of counters and mappings, on which all clients must agree; their keys; and the errors for stored ones."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tbloom.arguments import FINGERPRINT_NAME
from tbloom.engine.flow import Status, text
from tbloom.engine.keys import DEFAULT_INNER, DEFAULT_MAPPING, Keys, check_name
from tbloom.engine.parameters import differences, read_stored, unexpected
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.window import Window

KIND = "mapping"
#: The kind of a counter without a mapping.
INTEGERS = "integers"
LAYOUT = 1
#: The limit of ids in a mapping.
MAX_MEMBERS = 1 << 32
#: The parameters of a counter's slices.
PARAMETERS = ("granularity", "slices", "tz")


class MappingKeys(Keys):
    """The keys of a mapping and its counters, or of a counter of integers."""

    __slots__ = ()

    def __init__(self, name: str, prefix: str = "") -> None:
        if name == DEFAULT_MAPPING:
            super().__init__("ids", prefix=prefix, inner=DEFAULT_INNER)
        else:
            super().__init__(name, prefix=prefix)

    def ids(self, generation: str) -> str:
        """Return the prefix of the keys of the buckets of ids; a bucket's number follows."""
        return f"{self.tag_of(0)}:ids:{generation}:"

    def members(self) -> str:
        """Return the key of the number of ids that the mapping has given."""
        return f"{self.tag_of(0)}:members"

    def forgotten(self) -> str:
        """Return the key of the layout that is being cleared, until its buckets are deleted."""
        return f"{self.tag_of(0)}:forgotten"

    def counters(self) -> str:
        """Return the key of the entries of the counters that share the mapping: by name, generation and parameters."""
        return f"{self.tag_of(0)}:counters"

    def forgotten_counters(self) -> str:
        """Return the key of the entries of counters that are being cleared, until their pieces are deleted."""
        return f"{self.tag_of(0)}:forgotten:counters"

    def piece(self, counter: str, label: str, piece: int = 0) -> str:
        """Return the key of a piece of one slice of a counter: 2^28 ids in chunks."""
        key = f"{self.tag_of(0)}:chunks:{counter}:{label}"
        return f"{key}:{piece}" if piece else key

    def scratch(self) -> str:
        """Return the key of a container that exists while a script runs."""
        return f"{self.tag_of(0)}:scratch"


@dataclass(frozen=True, slots=True)
class CounterConfig:
    """The parameters of one counter; raises ConfigError for impossible ones."""

    name: str
    #: None: the members are integers, and their own ids.
    mapping: str | None = DEFAULT_MAPPING
    granularity: str | timedelta | None = None
    slices: int | None = None
    tz: str = "UTC"
    keep_members: bool = False
    #: The text before the hash tag in each key. It is not stored.
    prefix: str = ""
    #: None: the counter has no slices.
    window: Window | None = field(init=False, repr=False, compare=False)
    keys: MappingKeys = field(init=False, repr=False, compare=False)
    #: The parameters as the server stores them; and the mapping's.
    stored: str = field(init=False, repr=False)
    stored_mapping: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if type(self.keep_members) is not bool:
            raise ConfigError("keep_members", self.keep_members, "True or False")
        if self.mapping not in (None, DEFAULT_MAPPING):
            check_name(self.mapping, "mapping")
        if self.mapping is None and self.keep_members:
            raise ConfigError(
                "keep_members", self.keep_members, "False, because there is no mapping"
            )
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
        keys = MappingKeys(self.name if self.mapping is None else self.mapping, self.prefix)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "stored", json.dumps(values, separators=(",", ":")))
        own: dict[str, Any] = {"layout": LAYOUT, "kind": INTEGERS, "hash": None}
        if self.mapping is not None:
            own |= {"kind": KIND, "hash": FINGERPRINT_NAME, "keep_members": self.keep_members}
        object.__setattr__(self, "stored_mapping", json.dumps(own, separators=(",", ":")))


def parse_entry(stored: str | bytes) -> tuple[str, str, str]:
    """Return a counter's generation, its mapping's, and its parameters. If the entry is not tbloom's, the generations are empty."""
    entry = text(stored)
    found = re.fullmatch(r"([0-9]+) ([0-9-]+) (.*)", entry, re.DOTALL)
    return (found[1], found[2], found[3]) if found else ("", "", entry)


def from_stored(
    name: str | bytes, mapping: str | None, entry: str | bytes, prefix: str = ""
) -> CounterConfig | None:
    """Return the parameters in a counter's entry, or None if another program wrote the entry or its name."""
    with suppress(ConfigError, TypeError, UnicodeDecodeError):
        # No replacement for bytes that are not UTF-8: a counter of that name is another one.
        name = name if isinstance(name, str) else name.decode()
        _, _, parameters = parse_entry(entry)
        return CounterConfig(name, mapping, prefix=prefix, **read_stored(parameters))
    return None


def refusal(config: CounterConfig, status: int, payload: Any, *more: Any) -> TBloomError:
    """Return the error for a script's reply that another call can't correct. ``more`` says that it is about the counter."""
    if status == Status.MISMATCH:
        stored = text(payload)
        if more:
            return ConfigMismatch(config.name, differences(stored, config.stored), stored)
        differing = differences(stored, config.stored_mapping)
        return ConfigMismatch(config.mapping or config.name, differing, stored)
    if status == Status.OTHER_IDS:
        return TBloomError(
            f"counter {config.name!r}: the server has lost the ids of the mapping {config.mapping!r} that it counts; "
            "clear() it (see warnings())"
        )
    if status == Status.DAMAGED:
        return TBloomError(
            f"counter {config.name!r}: key {text(payload)!r} has data that tbloom did not write, or has lost data; "
            f"clear() the counter, or clear(mapping=True) if the key is one of the mapping {config.mapping!r}"
        )
    return unexpected(f"counter {config.name!r}", status)
