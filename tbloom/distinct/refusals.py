"""The errors for what the server has stored."""

from __future__ import annotations

from typing import Any

from tbloom.distinct.config import CounterConfig
from tbloom.engine.flow import Command, Flow, Status, deliver, text
from tbloom.engine.keys import DEFAULT_MAPPING, MappingKeys
from tbloom.engine.parameters import differences
from tbloom.errors import ConfigMismatch, TBloomError

#: The default mapping before it got a name that no filter can have.
FORMER_DEFAULT = "ids"


def check_default(config: CounterConfig) -> Flow[None]:
    """Raises TBloomError for a counter that is only in the mapping that was the default before."""
    if config.mapping != DEFAULT_MAPPING:
        return
    keys = (config.keys, MappingKeys(FORMER_DEFAULT))
    entries = [Command(("HGET", each.counters(), config.name)) for each in keys]
    entry, former = yield from deliver(entries)
    if former is not None and entry is None:
        raise TBloomError(
            f"counter {config.name!r}: it is in the mapping {FORMER_DEFAULT!r}, which was the default before; "
            f"give mapping={FORMER_DEFAULT!r} to go on with it, or clear() it there"
        )


def refusal(config: CounterConfig, status: int, payload: Any, *more: Any) -> TBloomError:
    """The error for a script's reply that no other call can mend; ``more`` is there if it is about the counter."""
    if status == Status.MISMATCH:
        stored = text(payload)
        if more:
            return ConfigMismatch(config.name, config.differences(stored), stored)
        differing = differences(stored, config.stored_mapping)
        return ConfigMismatch(config.mapping or config.name, differing, stored)
    if status == Status.OTHER_IDS:
        return TBloomError(
            f"counter {config.name!r}: the server has lost the ids of the mapping {config.mapping!r} that it counts; "
            "clear() it (see warnings())"
        )
    if status == Status.DAMAGED:
        return TBloomError(
            f"counter {config.name!r}: key {text(payload)!r} holds what is not tbloom's, or the server has lost what it "
            f"held; clear() the counter, or clear(mapping=True) if the key is one of the mapping {config.mapping!r}"
        )
    return TBloomError(f"counter {config.name!r}: the server takes a call for a stray copy")
