"""Checks of a server: stored parameters, and whether it evicts keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tbloom.engine.flow import Command, Flow, ScriptCall, deliver_all, text
from tbloom.engine.parameters import Guarded
from tbloom.engine.scripts import Script
from tbloom.errors import ConfigMismatch

_SERVER = Script("engine/server")


def check_stored(config: Guarded, keys: Iterable[str] = ()) -> Flow[None]:
    """Raises ConfigMismatch where the root, or one of these keys, has other parameters."""
    keys = [*keys] or [config.keys.root]
    for stored in (yield from deliver_all([Command(("GET", key)) for key in keys])):
        if stored is not None and text(stored) != config.stored:
            raise ConfigMismatch(config.name, config.differences(text(stored)), text(stored))


def evictions(keys: list[str]) -> Flow[list[str]]:
    """A warning for each kind of server with these keys that evicts keys when its memory is full."""
    found: dict[str, None] = {}
    replies = yield from deliver_all([ScriptCall(_SERVER, (key,), ()) for key in keys])
    for _, section in replies:
        fields = dict(re.findall(r"^(\w+):(.*?)\r?$", text(section), re.MULTILINE))
        policy, limit = fields.get("maxmemory_policy", ""), int(fields.get("maxmemory", 0))
        if limit and policy != "noeviction":
            found[
                f"the server drops keys once it uses {limit} bytes (maxmemory-policy {policy}); "
                "what they held is forgotten then: set noeviction"
            ] = None
    return list(found)
