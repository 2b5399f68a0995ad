"""The errors that tbloom raises itself. Errors of the server or the connection are redis-py's.

::

    TBloomError
    ├── ConfigError       an argument that can't be right (also a ValueError)
    ├── ConfigMismatch    the store exists with other parameters
    ├── FilterFull        the current slice is full, and growth is off
    ├── MappingFull       a distinct counter's mapping has max_members already
    ├── ServerTooOld      the server is too old for the scripts
    └── StoreLocked       another process writes to the page store
"""

from __future__ import annotations

from typing import Any

_MAX_SHOWN = 200
#: The parameters of a filter's size, and the parameters that determine it unless it is given.
_SIZE = ("bits", "hashes")
_SIZED_BY = {"capacity", "error_rate", "slices", "grow"}


def shown(value: object) -> str:
    """Return the value as text for a message, cut to a few lines. Its repr may fail."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of an int of more than 4300 digits is a ValueError; other types may raise anything
        return f"some {type(value).__name__} that can't be shown"
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


class TBloomError(Exception):
    """The base class of tbloom's own errors."""


class ConfigError(TBloomError, ValueError):
    """An argument has a value that can't be right.

    Attributes: ``argument`` (its name), ``value`` (the given value) and ``expected`` (a description of
    valid values).
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        super().__init__(argument, value, expected)
        self.argument = argument
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.argument}: expected {self.expected}, got {shown(self.value)}"


class ConfigMismatch(TBloomError):
    """A store of this name exists with other parameters; nothing was changed.

    ``differences`` maps the name of each parameter that differs to the pair (stored, given); the number of the format is
    ``layout``. ``stored`` is the text of all stored parameters; ``remedy`` ends the message, unless the format differs.
    """

    def __init__(
        self,
        name: str,
        differences: dict[str, tuple[Any, Any]],
        stored: str = "",
        remedy: str = "give the same, or take another name",
    ) -> None:
        # Without the stored text, which may have the check value of a secret.
        super().__init__(name, differences)
        self.name = name
        self.differences = differences
        self.stored = stored
        self.remedy = remedy

    def __str__(self) -> str:
        found, known = self.differences.get("layout", (None, None))
        if type(found) is int:  # then the other parameters may mean something else
            return (
                f"{self.name!r} has format {shown(found)}, and this version of tbloom reads format {known}; "
                "use the version that wrote it"
            )
        derived = _SIZE if self.differences.keys() & _SIZED_BY else ()
        details = ", ".join(
            f"{parameter} is {shown(stored)} there and {shown(given)} here"
            for parameter, (stored, given) in self.differences.items()
            if parameter not in derived
        )
        return f"{self.name!r} is stored with other parameters: {details}; {self.remedy}"


class FilterFull(TBloomError):
    """A new item did not fit into the current slice, and was not added, because ``grow`` is False.

    ``capacity`` is a slice's capacity. Other items of the batch may have been added. To get their
    answers, add the items again, one by one, with the same filter object. ``shard`` is the number of the shard that is full.
    """

    def __init__(self, name: str, capacity: int, shard: int = 0) -> None:
        super().__init__(name, capacity, shard)
        self.name = name
        self.capacity = capacity
        self.shard = shard

    def __str__(self) -> str:
        return (
            f"filter {self.name!r}: the current slice is full at its capacity of {self.capacity} "
            "items, and grow=False"
        )


class MappingFull(TBloomError):
    """New members got no id, because the mapping ``mapping`` has ``max_members`` already.

    Members of the batch that have an id were counted. To get their first answers, add them again
    with the same counter object.
    """

    def __init__(self, mapping: str, max_members: int) -> None:
        super().__init__(mapping, max_members)
        self.mapping = mapping
        self.max_members = max_members

    def __str__(self) -> str:
        return f"mapping {self.mapping!r}: it has {self.max_members} members, which is max_members, and may have no more"


class ServerTooOld(TBloomError):
    """The server is older than Redis 6.2; ``version`` is the server's."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return f"tbloom needs Redis 6.2 or later, or Valkey 7.2 or later; this server is {self.version}"


class StoreLocked(TBloomError):
    """Another process writes to this page store. A store has one writer at a time; others can read it meanwhile.

    ``path`` is the store's; ``pid`` is the other process, or None if it is not known; ``otherwise`` names
    a remedy besides closing the store there.
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
