"""The parameters of an exact filter, which must be equal for all clients."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tbloom.arguments import FINGERPRINT_NAME
from tbloom.engine.keys import SLOTS, Keys
from tbloom.engine.parameters import check_format, read_stored
from tbloom.errors import ConfigError

KIND = "exact"
LAYOUT = 1


@dataclass(frozen=True, slots=True)
class ExactConfig:
    """The parameters of one exact filter. The constructor raises ConfigError if they can't be right."""

    name: str
    shards: int = 1
    #: The text before the hash tag in each key. It is not stored.
    prefix: str = ""
    keys: Keys = field(init=False, repr=False, compare=False)
    #: The parameters as the server stores them.
    stored: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.shards) is not int or not 1 <= self.shards <= SLOTS:
            raise ConfigError("shards", self.shards, f"a whole number from 1 to {SLOTS}")
        values = {
            "layout": LAYOUT,
            "kind": KIND,
            "hash": FINGERPRINT_NAME,
            "shards": self.shards,
        }
        object.__setattr__(self, "keys", Keys(self.name, self.shards, prefix=self.prefix))
        object.__setattr__(self, "stored", json.dumps(values, separators=(",", ":")))


def from_stored(name: str, stored: str, prefix: str = "") -> ExactConfig | None:
    """Return the parameters of a stored exact filter, or None if the text is not an exact filter's. Raise ConfigMismatch if it has another format."""
    values = read_stored(stored)
    if values.get("kind") == KIND:
        check_format(name, stored, LAYOUT)
    try:
        config = ExactConfig(name, values.get("shards"), prefix)  # type: ignore[arg-type]
    except ConfigError:
        return None
    return config if config.stored == stored else None
