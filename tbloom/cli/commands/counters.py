"""The distinct counters on a server, opened with their stored parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from tbloom import ConfigError
from tbloom.cli.kit import filters, options
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.distinct import DistinctCounter, MemberSet
from tbloom.distinct.config import INTEGERS, PARAMETERS, MappingKeys, from_stored
from tbloom.engine.flow import text
from tbloom.engine.keys import DEFAULT_MAPPING, check_name
from tbloom.engine.parameters import read_stored
from tbloom.engine.server import server_time


def of_mapping(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --url and --mapping, and pass the mapping's counters as the first argument."""

    @wraps(command)
    def opened(*, server: Server, mapping: str, **given: Any) -> Any:
        return command(Counters(server, mapping), **given)

    return cast("Callable[..., Any]", options.all_of(options.server, options.mapping)(opened))


class Counters:
    """The counters of one mapping; errors name the mapping and the server."""

    def __init__(self, server: Server, mapping: str) -> None:
        self.server: Server = server
        self.mapping: str = mapping
        if mapping != DEFAULT_MAPPING:
            check_name(mapping, "mapping")
        self._keys = MappingKeys(mapping, server.prefix)
        #: The mapping exists.
        self.exists: bool = server.kind(mapping) in filters.COUNTERS

    def entries(self) -> dict[bytes, str]:
        """Return the entry of each counter, by name, sorted."""
        stored = self.server.client.hgetall(self._keys.counters())
        return {name: text(entry) for name, entry in sorted(stored.items())}

    def of_entry(self, name: str | bytes, entry: str, **own: Any) -> DistinctCounter:
        """Return the counter of an entry. Raise ConfigError if it can't be read, or if the name is no counter's."""
        config = from_stored(name, self.mapping, entry, self.server.prefix)
        if config is None:
            place = f"{name!r} in the counters of {self.mapping!r}"
            expected = "the name and the parameters of a counter that this version of tbloom can read (clear() it in Python)"
            raise ConfigError(place, entry, expected)
        stored = {key: getattr(config, key) for key in PARAMETERS}
        return self.counter(config.name, **stored, **own)

    def counter(self, name: str, **own: Any) -> DistinctCounter:
        """Return the counter with these parameters; one of integers if that is what the mapping belongs to."""
        stored = read_stored(self.server.stored(self.mapping) or "")
        own["prefix"] = self.server.prefix
        if stored.get("kind") == INTEGERS:
            return DistinctCounter(self.server.client, name, None, **own)
        keep = stored.get("keep_members") is True
        return DistinctCounter(self.server.client, name, self.mapping, keep_members=keep, **own)

    def open_or_create(self, name: str, given: dict[str, Any]) -> DistinctCounter:
        """Return the counter of this name. With ``given`` parameters, it may be a new one."""
        entry = None if given else self._entry(name)
        if entry is not None:
            return self.of_entry(name, entry, retry_for=filters.RETRY_FOR)
        own = {**given, "retry_for": filters.RETRY_FOR}
        counter = self.counter(name, **own)
        counter.contains("any")  # raises ConfigMismatch where it is stored with other parameters
        return counter

    def open(self, name: str) -> DistinctCounter:
        """Return the stored counter of this name. Raise CommandError if there is none."""
        counter = self.find(name)
        if counter is None:
            raise CommandError(
                f"no counter {name!r} of the mapping {self.mapping!r} on {self.server.place} "
                "('tbloom count list' shows the counters)"
            )
        return counter

    def operand(self, word: str) -> DistinctCounter | MemberSet:
        """Return the counter of this name, or the slice ``NAME@LABEL``."""
        name, _, label = word.rpartition("@")
        if not name or self.find(word) is not None:
            return self.open(word)
        counter = self.open(name)
        window = counter.config.window
        if window is None:
            raise CommandError(f"{word!r}: the counter {name!r} has no slices")
        live = [slice.label for slice in window.live(counter.run(server_time(counter.config)))]
        if label not in live:
            raise CommandError(f"{word!r}: expected a slice from {live[0]} to {live[-1]}")
        return counter.slice(label)

    def find(self, name: str) -> DistinctCounter | None:
        """Return the stored counter, or None. Without --mapping, it may be one of integers."""
        entry = self._entry(name)
        if entry is not None:
            return self.of_entry(name, entry)
        if self.mapping == DEFAULT_MAPPING and self.server.kind(name) == INTEGERS:
            return Counters(self.server, name).find(name)
        return None

    def _entry(self, name: str) -> str | None:
        entry = self.server.client.hget(self._keys.counters(), name)
        return None if entry is None else text(entry)
