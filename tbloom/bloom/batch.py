"""The items of one call to a filter."""

from __future__ import annotations

from dataclasses import dataclass

from tbloom.bloom.view import Header
from tbloom.engine.pending import Batch


@dataclass(slots=True, eq=False)
class FilterBatch(Batch):
    """The items of one call to a filter."""

    #: How many of the newest slices are checked.
    within: int = 1
    #: The slice that new items go into, counted back from the current one, which is 0.
    age: int = 0
    #: The label of that slice, for an import; None: the age holds, whichever slice is current.
    label: str | None = None
    #: The number of items not yet sent to this shard, this batch included.
    in_hand: int = 0
    #: What its last call was made from.
    header: Header = None  # type: ignore[assignment] # set before each call
