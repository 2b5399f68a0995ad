"""The words of usual calls, prepared: ``add`` of one item, to the current slice of a filter with one shard."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any, NamedTuple

from tbloom.bloom.script_calls import ADD, SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.tokens import Lane

#: The replies to one item: it is new, or seen.
NEW: list[Any] = [0, b"1"]
ANSWERS: tuple[list[Any], ...] = NEW, [0, b"0"]


class Usual(NamedTuple):
    """What the calls of a slice have in common."""

    calls: SliceCalls
    #: The slice in which they are current (ns, by this machine's monotonic clock).
    begins: int
    ends: int
    generation: str
    #: Of a call without a lane and items.
    words: tuple[Any, ...]
    pack: Callable[[list[bytes]], bytes]
    #: Makes a batch's call if that is sent again.
    again: Callable[[Batch], ScriptCall]

    def are_current(self, calls: SliceCalls | None) -> bool:
        """Whether the next call can be made of them; ``calls``: those of the client."""
        return self.calls is calls and self.begins <= monotonic_ns() < self.ends

    def call(self, digest: bytes, lane: Lane) -> tuple[Batch, ScriptCall]:
        """An item's batch, and its call."""
        *before, _, constant, _ = self.words
        call = ScriptCall(ADD, words=(*before, lane.token, constant, self.pack([digest])))
        batch = Batch([digest], 0, lane, known=self.calls, call=self.again)
        batch.generation = self.generation
        return batch, call
