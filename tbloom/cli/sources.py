"""Where fingerprints come from: the set of an exact dupefilter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tbloom.calls import text
from tbloom.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: So many members are asked for at once: the server is busy for less than a millisecond.
_AT_ONCE = 2000


def size(client: Any, key: str) -> int:
    """How many members the set has; raises CommandError where it is none."""
    kind = text(client.type(key))
    if kind != "set":
        found = "there is no such key" if kind == "none" else f"it is a {kind}"
        raise CommandError(f"expected the key of a set, got {key!r}: {found}")
    return int(client.scard(key))


def members(client: Any, key: str) -> Iterator[list[bytes]]:
    """The set's members, as they come; those that are there all the time are among them."""
    cursor: Any = None
    while cursor != 0:
        cursor, found = client.sscan(key, cursor or 0, count=_AT_ONCE)
        yield [member.encode() if isinstance(member, str) else member for member in found]


def as_item(member: bytes) -> bytes:
    """A fingerprint of 40 hex digits as ``tbloom.scrapy.DupeFilter`` has it: 20 bytes."""
    return bytes.fromhex(member.decode()) if re.fullmatch(rb"[0-9a-f]{40}", member) else member
