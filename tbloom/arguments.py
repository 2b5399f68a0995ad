"""Checks of arguments, and the encoding and fingerprints of items."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tbloom.errors import ConfigError

if TYPE_CHECKING:
    #: A str is encoded as UTF-8, an int as its decimal text.
    Item = str | bytes | bytearray | memoryview | int
else:  # FastAPI and pydantic read the types of methods at run time, and refuse those of buffers
    Item = str | bytes | int
T = TypeVar("T")
P = ParamSpec("P")

#: The name of ``fingerprint`` in a store's parameters.
FINGERPRINT_NAME = "blake2b_16"

_MAX_NOTE = 1 << 16
_MIN_TTL, _MAX_TTL = 0.001, 36525 * 86400.0  # seconds
# A window is at most a century long. It must fit before and after each instant.
_YEARS = (102, 9800)


def encode(item: Item, argument: str = "item") -> bytes:
    """Return the bytes of an item. Raise ConfigError for ``argument`` if it has none."""
    if isinstance(item, int) and not isinstance(item, bool):
        try:
            return b"%d" % item
        except ValueError:  # Python's own limit
            raise ConfigError(argument, item, "an int of at most 4,300 digits") from None
    if isinstance(item, bytearray | memoryview):
        item = bytes(item)  # a copy, because the caller may change the buffer later
    if not isinstance(item, str | bytes):
        expected = "str, bytes, bytearray, memoryview or int, but no bool"
        raise ConfigError(argument, item, expected)
    if not item:
        raise ConfigError(argument, item, "an item that is not empty")
    if isinstance(item, bytes):
        return item
    try:
        return str.encode(item)  # not item.encode(): a subclass may have its own
    except UnicodeEncodeError as error:
        expected = f"bytes, or a str that UTF-8 can encode ({error.reason} at {error.start})"
        raise ConfigError(argument, item, expected) from None


def fingerprint(data: bytes) -> int:
    """Return the 128-bit BLAKE2b of ``data``, for stores that promise never to take one item for another.

    (Anyone can make collisions of mmh3.)
    """
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big")


def check_within(within: int | None, slices: int) -> int:
    """Return the number of newest slices to look in: ``within``, or all. Raise ConfigError if it can't be right."""
    if within is None:
        return slices
    if isinstance(within, int) and not isinstance(within, bool) and 1 <= within <= slices:
        return within
    raise ConfigError("within", within, f"a whole number of slices from 1 to {slices}")


def check_keep(keep: int | None, within: int | None, slices: int) -> int:
    """Return how many slices back an item goes so that it expires after ``keep`` slices.

    Raise ConfigError if ``keep`` can't be right, or if ``within`` is given too.
    """
    if keep is None:
        return 0
    if not isinstance(keep, int) or isinstance(keep, bool) or not 1 <= keep <= slices:
        raise ConfigError("keep", keep, f"a whole number of slices from 1 to {slices}")
    if within is not None:
        raise ConfigError("within", within, "None, because keep looks into all slices")
    return slices - keep


def check_at(at: datetime | None, argument: str = "at") -> datetime | None:
    """Return the instant; None is now. Raise ConfigError unless it has a time zone and a year that windows support."""
    if at is None or (
        isinstance(at, datetime)
        and _YEARS[0] <= at.year <= _YEARS[1]
        and at.utcoffset() is not None
    ):
        return at
    expected = "a datetime with a time zone, between the years 102 and 9800"
    raise ConfigError(argument, at, expected)


def check_items(items: Iterable[T], argument: str = "items") -> Iterable[T]:
    """Return the items. Raise ConfigError for ``argument`` unless they are an iterable of items."""
    is_single = isinstance(items, str | bytes | bytearray | memoryview)
    if is_single or not isinstance(items, Iterable):
        raise ConfigError(argument, items, f"an iterable of {argument}, not a single one")
    return items


def encode_all(items: Iterable[Item], argument: str = "items") -> list[bytes]:
    """Return the bytes of each item. Raise ConfigError for ``argument`` if one has none."""
    given: list[Any] = [*check_items(items, argument)]  # an iterator can be read only once
    try:
        data = [*map(str.encode, given)]
    except (TypeError, UnicodeEncodeError):
        data = given if {*map(type, given)} == {bytes} else [b""]
    # Only if some item has no bytes yet: one by one takes twice as long.
    if not all(data):
        data = [encode(item, f"{argument}[{i}]") for i, item in enumerate(given)]
    return data


def fingerprints_of(items: Iterable[Item]) -> list[int]:
    """Return the fingerprint of each item."""
    return [*map(fingerprint, encode_all(items))]


def check_id(number: Any, argument: str = "member") -> int:
    """Return the number as an int. Raise ConfigError for ``argument`` if it can't be an id."""
    try:
        index = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        index = -1
    if 0 <= index < 1 << 32:
        return index
    raise ConfigError(argument, number, "a whole number from 0 to 2^32 - 1")


def check_ttl(ttl: float | timedelta) -> int:
    """Return in milliseconds how long an item is remembered. Raise ConfigError if ``ttl`` can't be right."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and _MIN_TTL <= seconds <= _MAX_TTL
    ):
        return round(seconds * 1000)
    raise ConfigError("ttl", ttl, "seconds, or a timedelta, from a millisecond to 100 years")


def check_text(text: str, argument: str) -> str:
    """Return a note, or the name of a queue. Raise ConfigError for ``argument`` if it is too long, or no text that can be sent."""
    if not isinstance(text, str) or len(text) > _MAX_NOTE or re.search("[\ud800-\udfff]", text):
        expected = f"a str of at most {_MAX_NOTE} characters, without lone surrogates"
        raise ConfigError(argument, text, expected)
    return text


def takes(optional: type, *required: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate an ``__init__`` to raise TypeError for an unknown argument. The message names the nearest one, or all.

    ``optional`` is a TypedDict of the optional arguments, ``required`` are other ones. A subclass may take more: only what it
    passes on is checked.
    """
    taken = (*required, *optional.__annotations__)
    # Arguments of from_url and open, which make a client.
    others = ("client_options",) if "client" in required else ()

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        @wraps(init)
        def checked(*args: P.args, **given: P.kwargs) -> None:
            for name in given.keys() - {*taken}:
                nearest = get_close_matches(name, (*taken, *others), 1)
                hint = (
                    f"did you mean {nearest[0]!r}?" if nearest else f"it takes {', '.join(taken)}"
                )
                if name in others:
                    hint = "from_url() and open() do"
                raise TypeError(f"{type(args[0]).__name__} takes no argument {name!r}; {hint}")
            init(*args, **given)

        return checked

    return decorate
