"""Arguments of the verbs: checked, encoded, digested."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, TypeVar

from tbloom.errors import ConfigError

#: A text stands for its UTF-8, an integer for its decimal text.
Item = str | bytes | int
T = TypeVar("T")

#: Stored with a store that uses ``fingerprint``.
FINGERPRINT_NAME = "blake2b_16"

_MAX_NOTE = 1 << 16
_MIN_TTL, _MAX_TTL = 0.001, 36525 * 86400.0  # seconds
# A window is at most a century long, and has to fit before and after.
_YEARS = (102, 9800)


def encode(item: Item, argument: str = "item") -> bytes:
    """The bytes of an item; ``argument`` names it in the ConfigError if it has none."""
    if isinstance(item, int) and not isinstance(item, bool):
        try:
            return b"%d" % item
        except ValueError:  # Python's own limit
            raise ConfigError(argument, item, "an int of at most 4,300 digits") from None
    if not isinstance(item, str | bytes):
        raise ConfigError(argument, item, "str, bytes or int, but no bool")
    if not item:
        raise ConfigError(argument, item, "an item that is not empty")
    if isinstance(item, bytes):
        return item
    try:
        return str.encode(item)  # whatever a subclass has in its place
    except UnicodeEncodeError as error:
        expected = f"bytes, or a str that UTF-8 can encode ({error.reason} at {error.start})"
        raise ConfigError(argument, item, expected) from None


def fingerprint(data: bytes) -> int:
    """The 128-bit BLAKE2b of ``data``, for stores that promise never to take one item for another.

    (Anyone can make collisions of mmh3.)
    """
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big")


def check_within(within: int | None, slices: int) -> int:
    """The number of newest slices that are asked."""
    if within is None:
        return slices
    if isinstance(within, int) and not isinstance(within, bool) and 1 <= within <= slices:
        return within
    raise ConfigError("within", within, f"a whole number of slices from 1 to {slices}")


def check_keep(keep: int | None, within: int | None, slices: int) -> int:
    """The age of the slice that an item goes into which is kept for ``keep`` slices: it leaves with that slice."""
    if keep is None:
        return 0
    if not isinstance(keep, int) or isinstance(keep, bool) or not 1 <= keep <= slices:
        raise ConfigError("keep", keep, f"a whole number of slices from 1 to {slices}")
    if within is not None:
        raise ConfigError("within", within, "left out, because with keep all slices are asked")
    return slices - keep


def check_at(at: datetime | None, argument: str = "at") -> datetime | None:
    """The instant, if it can be looked at; None is now."""
    if at is None or (
        isinstance(at, datetime)
        and _YEARS[0] <= at.year <= _YEARS[1]
        and at.utcoffset() is not None
    ):
        return at
    expected = "a datetime with a time zone, between the years 102 and 9800"
    raise ConfigError(argument, at, expected)


def check_items(items: Iterable[T], argument: str = "items") -> Iterable[T]:
    """The items, if they are an iterable; ``argument`` names them in the ConfigError if they are not."""
    is_single = isinstance(items, str | bytes | bytearray | memoryview)
    if is_single or not isinstance(items, Iterable):
        raise ConfigError(argument, items, f"an iterable of {argument}, not a single one")
    return items


def encode_all(items: Iterable[Item], argument: str = "items") -> list[bytes]:
    """The bytes of each item; ``argument`` names them in errors."""
    given: list[Any] = [*check_items(items, argument)]  # perhaps they can be read only once
    try:
        data = [*map(str.encode, given)]
    except (TypeError, UnicodeEncodeError):
        data = given if {*map(type, given)} == {bytes} else [b""]
    # One by one takes twice as long.
    if not all(data):
        data = [encode(item, f"{argument}[{i}]") for i, item in enumerate(given)]
    return data


def fingerprints_of(items: Iterable[Item]) -> list[int]:
    """The fingerprint of each item."""
    return [*map(fingerprint, encode_all(items))]


def check_id(number: Any, argument: str = "member") -> int:
    """The number, if it can be an id; ``argument`` names it in the ConfigError if not."""
    try:
        index = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        index = -1
    if 0 <= index < 1 << 32:
        return index
    raise ConfigError(argument, number, "a whole number from 0 to 2^32 - 1")


def check_ttl(ttl: float | timedelta) -> int:
    """A time for which an item is remembered (ms)."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and _MIN_TTL <= seconds <= _MAX_TTL
    ):
        return round(seconds * 1000)
    raise ConfigError("ttl", ttl, "seconds, or a timedelta, from a millisecond to 100 years")


def check_note(note: str, argument: str = "note") -> str:
    """The note, if it can be kept with a claim."""
    if not isinstance(note, str) or len(note) > _MAX_NOTE or re.search("[\ud800-\udfff]", note):
        raise ConfigError(argument, note, f"a str of at most {_MAX_NOTE} characters")
    return note


def check_notes(digests: list[bytes], notes: Iterable[str] | None) -> dict[bytes, str]:
    """The notes, by their items' digests."""
    if notes is None:
        return {}
    given = enumerate(check_items(notes, "notes"))
    checked = [check_note(note, f"notes[{i}]") for i, note in given]
    if len(checked) != len(digests):
        raise ConfigError("notes", notes, f"as many as there are items, {len(digests)}")
    # A repeated item gets its first note.
    return dict(zip(reversed(digests), reversed(checked), strict=True))
