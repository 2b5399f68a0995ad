"""What whoever runs a filter should know of it, beside what ``warnings`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.cli.kit import words

if TYPE_CHECKING:
    from tbloom.bloom.info import FilterInfo


def advice(info: FilterInfo) -> list[str]:
    """The filter's warnings, and a sentence for each slice that holds more than it was made for."""
    found = list(info.warnings)
    for slice in info.slices:
        if slice.items > info.capacity:
            times = slice.items / info.capacity
            parts = f"; it has grown to {slice.parts} parts" if slice.parts > 1 else ""
            found.append(
                f"slice {slice.label} holds {times:.1f} times its capacity{parts}: "
                f"reconfigure() with a capacity of {slice.items:,} or more"
            )
    if info.error_rate > info.promised_error_rate:
        found.append(
            f"the error rate is {words.rate(info.error_rate)}, more than the promised "
            f"{words.rate(info.promised_error_rate)}"
        )
    return found
