"""The parameters that are stored with a store and compared by its clients."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tbloom.engine.flow import Status, text
from tbloom.engine.keys import Keys
from tbloom.errors import ConfigMismatch, TBloomError


def differences(stored: str, ours: str) -> dict[str, tuple[Any, Any]]:
    """Return the parameters that differ between two stored texts, as pairs (stored, ours)."""
    theirs, expected = read_stored(stored), read_stored(ours)
    if theirs.keys() == {"stored"}:
        return {"stored": (stored, ours)}  # another program's text
    kinds = theirs.get("kind", "filter"), expected.get("kind", "filter")
    if kinds[0] != kinds[1]:
        return {"kind": kinds}  # stores of two kinds have different parameters
    differing = {
        name: (theirs.get(name), expected.get(name))
        for name in sorted(theirs.keys() | expected.keys())
        if theirs.get(name) != expected.get(name)
    }
    if "secret" in differing:
        there, here = differing["secret"]  # check values, which must not be shown
        differing["secret"] = there and "another one", here and "this one"
        differing.pop("hash", None)  # it follows from the secret
    if not differing and stored != ours:
        # The same values in a spelling that tbloom does not write, such as true for 1.
        return {"stored": (stored, ours)}
    return differing


def check_format(name: str, stored: str, known: int) -> None:
    """Raise ConfigMismatch if the parameters of a store, at this name or path, have another number of the format."""
    found = read_stored(stored).get("layout")
    if type(found) is int and found != known:
        raise ConfigMismatch(name, {"layout": (found, known)}, stored)


class StoreConfig(Protocol):
    """The parameters of a store."""

    @property
    def name(self) -> str:
        """The store's name."""

    @property
    def keys(self) -> Keys:
        """The names of its keys."""

    @property
    def stored(self) -> str:
        """The parameters as they are stored."""


def mismatch(ours: StoreConfig, stored: str | bytes) -> ConfigMismatch:
    """Return the error for stored parameters that differ from ours."""
    theirs = text(stored)
    differing = differences(theirs, ours.stored)
    remedy = "give the same, or take another name"
    if differing.keys() <= {"kind", "stored"}:
        remedy = "take another name"
    return ConfigMismatch(ours.name, differing, theirs, remedy)


def refusal(config: StoreConfig, status: int, payload: Any) -> TBloomError:
    """Return the error for a script's reply that another call can't correct."""
    if status == Status.MISMATCH:
        return mismatch(config, payload)
    return unexpected(f"filter {config.name!r}", status)


def unexpected(store: str, status: int) -> TBloomError:
    """Return the error for a reply with a status that the client can't use. ``store`` is the kind and name of the store."""
    if status == Status.STRAY:
        return TBloomError(f"{store}: the server took a call for a stray copy of an earlier one")
    return TBloomError(
        f"{store}: a script has replied with the unknown status {status}; does another version of tbloom use this store, "
        "or is a part of another version installed?"
    )


def read_stored(stored: str) -> dict[str, Any]:
    """Return the stored parameters by name. If the text is not tbloom's, return it under the name "stored"."""
    try:
        values = json.loads(stored)
    except (ValueError, RecursionError):  # another program's text, or one with very deep nesting
        values = None
    return values if isinstance(values, dict) else {"stored": stored}
