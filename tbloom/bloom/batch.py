"""The items of one call to a filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tbloom.bloom.view import Header
from tbloom.engine.pending import Batch

#: Each item is searched for as itself.
NO_LOOKS: Mapping[bytes, bytes] = {}


@dataclass(slots=True, eq=False)
class FilterBatch(Batch):
    """The items of one call to a filter."""

    #: How many of the newest slices are checked.
    within: int = 1
    #: The age of the slice that new items go into: 0 is the current slice, 1 the slice before it.
    age: int = 0
    #: The label of that slice, for an import. If it is None, ``age`` chooses the slice.
    label: str | None = None
    #: The header of its last call.
    header: Header = None  # type: ignore[assignment] # set before each call
