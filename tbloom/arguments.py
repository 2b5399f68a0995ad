"""What callers of the verbs give: checked, by the names that they know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from tbloom.errors import ConfigError
from tbloom.hashing import Item, digest, encode

_LONGEST_NOTE = 1 << 16
_LEAST_TTL, _MOST_TTL = 0.001, 36525 * 86400.0  # seconds
# A window is at most a century long, and has to fit before and after.
_YEARS = (102, 9800)


def check_within(within: int | None, slices: int) -> int:
    """Of how many slices the newest are asked."""
    if within is None:
        return slices
    if isinstance(within, int) and not isinstance(within, bool) and 1 <= within <= slices:
        return within
    raise ConfigError("within", within, f"a whole number of slices from 1 to {slices}")


def check_at(at: datetime | None) -> datetime | None:
    """An instant to look at; None is now."""
    if at is None or (
        isinstance(at, datetime)
        and _YEARS[0] <= at.year <= _YEARS[1]
        and at.utcoffset() is not None
    ):
        return at
    expected = "a datetime with a time zone, between the years 102 and 9800"
    raise ConfigError("at", at, expected)


def check_items(items: Iterable[Item], argument: str = "items") -> Iterable[Item]:
    """Several items; ``argument`` names them in the ConfigError if they are not."""
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise ConfigError(argument, items, f"an iterable of {argument}, not a single one")
    return items


def digests_of(
    items: Iterable[Item],
    digest: Callable[[bytes], int] = digest,
    first: int = 0,
    argument: str = "items",
) -> list[int]:
    """The items' digests, in order; ``first`` is the number of the first one, ``argument`` what they are called."""
    return [
        digest(encode(item, f"{argument}[{i}]"))
        for i, item in enumerate(check_items(items, argument), first)
    ]


def check_ttl(ttl: float | timedelta) -> int:
    """For how long an item is remembered (ms)."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and _LEAST_TTL <= seconds <= _MOST_TTL
    ):
        return round(seconds * 1000)
    raise ConfigError("ttl", ttl, "seconds, or a timedelta, from a millisecond to 100 years")


def check_note(note: str, argument: str = "note") -> str:
    """The note, if it can be kept with a claim."""
    if not isinstance(note, str) or len(note) > _LONGEST_NOTE or re.search("[\ud800-\udfff]", note):
        raise ConfigError(argument, note, f"a str of at most {_LONGEST_NOTE} characters")
    return note


def check_notes(digests: list[int], notes: Iterable[str] | None) -> dict[int, str]:
    """The notes, by their items' digests."""
    if notes is None:
        return {}
    if isinstance(notes, str):
        raise ConfigError("notes", notes, "an iterable of notes, not a single one")
    checked = [check_note(note, f"notes[{i}]") for i, note in enumerate(notes)]
    if len(checked) != len(digests):
        raise ConfigError("notes", notes, f"as many as there are items, {len(digests)}")
    # Of a repeated item, the first.
    return dict(zip(reversed(digests), reversed(checked), strict=True))
