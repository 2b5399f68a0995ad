"""The keys of mappings and counters."""

from __future__ import annotations

from tbloom.engine.keys import DEFAULT_INNER, DEFAULT_MAPPING, Keys


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
        """Return the key of the former layout, which exists until its buckets are deleted."""
        return f"{self.tag_of(0)}:forgotten"

    def counters(self) -> str:
        """Return the key of the entries of the counters that share the mapping: by name, generation and parameters."""
        return f"{self.tag_of(0)}:counters"

    def forgotten_counters(self) -> str:
        """Return the key of the entries of former counters, which exists until their pieces are deleted."""
        return f"{self.tag_of(0)}:forgotten:counters"

    def piece(self, counter: str, label: str, piece: int = 0) -> str:
        """Return the key of a piece of one slice of a counter: 2^28 ids in chunks."""
        key = f"{self.tag_of(0)}:chunks:{counter}:{label}"
        return f"{key}:{piece}" if piece else key

    def scratch(self) -> str:
        """Return the key of a container that exists while a script runs."""
        return f"{self.tag_of(0)}:scratch"
