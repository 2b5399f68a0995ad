"""The errors that tbloom raises itself.

Redis' own errors (a lost connection, a server out of memory, ...) come
through as redis-py's.

::

    TBloomError
    ├── ConfigError       an argument that can't be right (also a ValueError)
    ├── ConfigMismatch    what is stored has other parameters
    ├── FilterFull        the current slice is full, and growth is off
    ├── MappingFull       the mapping of a distinct counter has given all ids that it may
    ├── ServerTooOld      the server lacks what the scripts need
    └── StoreLocked       another process writes to the page store
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConfigError",
    "ConfigMismatch",
    "FilterFull",
    "MappingFull",
    "ServerTooOld",
    "StoreLocked",
    "TBloomError",
]


_MOST_SHOWN = 200


def _shown(value: object) -> str:
    """The value as a message may have it: it comes from outside, and need not even have a repr."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a number of more than 4300 digits is a ValueError, others raise what they like
        return f"some {type(value).__name__} that can't be shown"
    if len(text) <= _MOST_SHOWN:
        return text
    return f"{text[:_MOST_SHOWN]}... ({len(text)} characters)"


class TBloomError(Exception):
    """The root of tbloom's own errors."""


class ConfigError(TBloomError, ValueError):
    """An argument has a value that can't be right.

    Attributes: ``argument`` (its name), ``value`` (what was given) and
    ``expected`` (what would have been right).
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        super().__init__(argument, value, expected)
        self.argument = argument
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.argument}: expected {self.expected}, got {_shown(self.value)}"


class ConfigMismatch(TBloomError):
    """What is stored by that name has other parameters; nothing was changed.

    ``differences`` maps the name of each parameter that differs to the pair
    (stored, given); ``stored`` is all that is stored, as text.
    """

    def __init__(
        self, name: str, differences: dict[str, tuple[Any, Any]], stored: str = ""
    ) -> None:
        super().__init__(name, differences, stored)
        self.name = name
        self.differences = differences
        self.stored = stored

    def __str__(self) -> str:
        details = ", ".join(
            f"{parameter} is {_shown(stored)} there and {_shown(given)} here"
            for parameter, (stored, given) in self.differences.items()
        )
        return f"{self.name!r} is stored with other parameters: {details}"


class FilterFull(TBloomError):
    """A new item did not fit into the current slice, and was not added: ``grow`` is False.

    ``capacity`` is what a slice holds. Of a batch, other items may have been added: add it again
    with the same filter object, and they are told what they are before this is raised anew.
    """

    def __init__(self, name: str, capacity: int) -> None:
        super().__init__(name, capacity)
        self.name = name
        self.capacity = capacity

    def __str__(self) -> str:
        return (
            f"filter {self.name!r}: the current slice is full at its capacity of {self.capacity} "
            "items, and grow=False"
        )


class MappingFull(TBloomError):
    """Members had no id yet, and the mapping ``mapping`` may not give more than ``max_members``.

    Of a batch, those that have an id were counted. Add these again with the same counter object, and they are told
    their first answers.
    """

    def __init__(self, mapping: str, max_members: int) -> None:
        super().__init__(mapping, max_members)
        self.mapping = mapping
        self.max_members = max_members

    def __str__(self) -> str:
        return f"mapping {self.mapping!r}: it has {self.max_members} members, which is max_members, and may have no more"


class ServerTooOld(TBloomError):
    """The server is older than Redis 6.2; ``version`` is what it says it is."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return f"tbloom needs Redis 6.2 or later, or Valkey 7.2 or later; this server is {self.version}"


class StoreLocked(TBloomError):
    """A page store has one writer at a time, and another one has opened it; it can be read meanwhile.

    ``path`` is the store's, ``pid`` the other process, if it is known; ``otherwise`` says what can be done but close
    it there.
    """

    def __init__(
        self, path: str, pid: object = None, otherwise: str = "open it with readonly=True"
    ) -> None:
        super().__init__(path, pid, otherwise)
        self.path = path
        self.pid: int | None = pid if isinstance(pid, int) else None
        self.otherwise = otherwise

    def __str__(self) -> str:
        who = "another process" if self.pid is None else f"process {self.pid}"
        otherwise = f", or {self.otherwise}" if self.otherwise else ""
        return f"{self.path!r} is being written by {who}; close it there{otherwise}"
