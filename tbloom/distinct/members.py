"""Members and their ids: digests to send, the id of a member, and the members of ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tbloom.arguments import Item, check_id, check_items, encode, encode_all, fingerprint
from tbloom.distinct.config import MAX_MEMBERS, CounterConfig, refusal
from tbloom.engine.directory import Directory, read_directory
from tbloom.engine.flow import Call, Flow, Status, request
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The buckets that are read at once, each of some 55 members.
_BUCKETS_PER_TRIP = 64
_ID = re.compile(rb"(\d{1,10})(?::(.+))?", re.DOTALL)


def digest_of(config: CounterConfig, member: Item) -> tuple[int, bytes]:
    """Return the member's digest, or its id without a mapping; and its bytes."""
    if config.mapping is None:
        return check_id(member), b""
    data = encode(member, "member")
    return fingerprint(data), data


def digests_of(config: CounterConfig, members: Iterable[Item]) -> list[tuple[int, bytes]]:
    """Return ``digest_of`` for each member."""
    if config.mapping is None:
        members = check_items(members, "members")
        return [(check_id(member, f"members[{i}]"), b"") for i, member in enumerate(members)]
    return [(fingerprint(data), data) for data in encode_all(members, "members")]


def id_of(config: CounterConfig, generation: str, member: Item) -> Flow[int | None]:
    """Return the id of a member; None if it has none in this generation of the mapping."""
    digest, _ = digest_of(config, member)
    if config.mapping is None:
        return digest
    looked_in = ""
    while True:
        directory = yield from _read_directory(config)
        key = f"{config.keys.ids(generation)}{directory.half_of(digest) >> 1}"
        # If the bucket is the same as before, it has not been split meanwhile.
        if directory.generation != generation or key == looked_in:
            return None
        [value] = yield from request([Call(("HGET", key, digest.to_bytes(16, "big")))])
        if value is not None:
            return _parsed(config, key, value)[0]
        looked_in = key


class MemberPages:
    """Reads the members of the ids ``left``, a few thousand at a time. The mapping gave these ids in ``generation``."""

    def __init__(self, config: CounterConfig, generation: str, left: BitMap) -> None:
        if not config.keep_members:
            expected = "True, so that members can be listed (bitmap() has their ids)"
            raise ConfigError("keep_members", config.keep_members, expected)
        self._config, self._generation, self._left = config, generation, left
        self._read: set[str] = set()
        self._waiting: Iterator[str] = iter(())

    def read(self) -> Flow[list[tuple[int, str | bytes]] | None]:
        """Return the next ids with their members, or None at the end."""
        if not self._left:
            return None
        some = [*islice(self._waiting, _BUCKETS_PER_TRIP)]
        if not some:
            yield from self._find()
            some = [*islice(self._waiting, _BUCKETS_PER_TRIP)]
        self._read.update(some)
        replies = yield from request([Call(("HVALS", key)) for key in some])
        pairs: list[tuple[int, str | bytes]] = []
        for key, values in zip(some, replies, strict=True):
            for value in values:
                id, member = _parsed(self._config, key, value)
                if id in self._left:
                    self._left.discard(id)
                    pairs.append((id, _as_given(member)))
        return pairs

    def _find(self) -> Flow[None]:
        """Find the buckets that have not been read: at first all, later those that came from splits."""
        directory, found = (yield from _read_directory(self._config)), list[str]()
        if directory.generation == self._generation:
            prefix = self._config.keys.ids(self._generation)
            keys = [f"{prefix}{bucket}" for bucket in directory.buckets()]
            found = [key for key in keys if key not in self._read]
        self._waiting = iter(found)
        if not found:
            raise TBloomError(
                f"mapping {self._config.mapping!r}: {len(self._left)} of its ids have no members; was it cleared meanwhile?"
            )


def _read_directory(config: CounterConfig) -> Flow[Directory]:
    return (
        yield from read_directory(str(config.mapping), config.keys.layout(), "clear(mapping=True)")
    )


def _parsed(config: CounterConfig, key: str, value: bytes) -> tuple[int, bytes]:
    """Return the id in a bucket's value, and the member if it is kept."""
    match = _ID.fullmatch(value)
    if not match or int(match[1]) >= MAX_MEMBERS or (config.keep_members and match[2] is None):
        raise refusal(config, Status.DAMAGED, key)
    return int(match[1]), match[2] or b""


def _as_given(member: bytes) -> str | bytes:
    """Return the member as ``str`` if it is UTF-8."""
    try:
        return member.decode()
    except UnicodeDecodeError:
        return member
