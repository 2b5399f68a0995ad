"""The words of usual calls, prepared: of one item, in the current slice of a filter with one shard."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, NamedTuple

from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.tokens import CallTemplate

#: The replies to one item: it is new (of ``contains``: seen), or not.
NEW: list[Any] = [0, b"1"]
ANSWERS: tuple[list[Any], ...] = NEW, [0, b"0"]


class Usual(NamedTuple):
    """What the calls of a slice have in common."""

    #: The generation that they are made for.
    generation: str
    #: The slice in which they are current (ns, by this machine's monotonic clock).
    begins: int
    ends: int
    calls: SliceCalls
    adding: CallTemplate
    probing: CallTemplate

    def are_current(self, calls: SliceCalls | None) -> bool:
        """Whether the next call can be made of them; ``calls``: those of the client."""
        return self.calls is calls and self.begins <= monotonic_ns() < self.ends
