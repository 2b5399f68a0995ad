"""The parameters that are stored with a store, so that other clients can compare theirs."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tbloom.engine.keys import Keys


def differences(stored: str, ours: str) -> dict[str, tuple[Any, Any]]:
    """Each parameter that differs between two texts that are stored with filters: (stored, ours)."""
    theirs, own = read_stored(stored), read_stored(ours)
    kinds = theirs.get("kind"), own.get("kind")
    if "hash" in theirs and kinds[0] != kinds[1]:
        return {"kind": kinds}  # stores of two kinds have nothing to compare
    differing = {
        name: (theirs.get(name), own.get(name))
        for name in sorted(theirs.keys() | own.keys())
        if theirs.get(name) != own.get(name)
    }
    if not differing and stored != ours:
        # The same values in another spelling, true for 1 say: that wasn't tbloom.
        return {"stored": (stored, ours)}
    return differing


class Guarded(Protocol):
    """Parameters that are stored, and compared with those of other clients."""

    @property
    def name(self) -> str:
        """The store's name."""

    @property
    def keys(self) -> Keys:
        """The names of its keys."""

    @property
    def stored(self) -> str:
        """The parameters as they are stored."""

    def differences(self, stored: str) -> dict[str, tuple[Any, Any]]:
        """Each that ``stored`` has another value for: (stored, ours)."""


def read_stored(stored: str) -> dict[str, Any]:
    """The parameters in what is stored, by name; under "stored" what is not tbloom's."""
    try:
        values = json.loads(stored)
    except (ValueError, RecursionError):  # somebody else's text, or one made to be deeply nested
        values = None
    return values if isinstance(values, dict) else {"stored": stored}
