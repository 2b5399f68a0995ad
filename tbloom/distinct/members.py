"""The members that have some ids, where the mapping keeps members."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig
from tbloom.distinct.exchange import refusal
from tbloom.engine.flow import Flow, Read, Status, deliver
from tbloom.engine.tree import read_tree
from tbloom.errors import ConfigError, TBloomError
from tbloom.items import Item

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The buckets that are read at once, each of some 55 members.
_BUCKETS_PER_TRIP = 64
_VALUE = re.compile(rb"(\d{1,10}):(.+)", re.DOTALL)


class MemberPages:
    """The members of the ids ``left``, a few thousand at a time."""

    def __init__(self, config: CounterConfig, left: BitMap) -> None:
        if not config.keep_members:
            expected = "True, so that members can be listed (ids() lists their ids)"
            raise ConfigError("keep_members", config.keep_members, expected)
        self._config, self._left = config, left
        self._read: set[str] = set()
        self._waiting: Iterator[str] = iter(())

    def read(self) -> Flow[list[Item] | None]:
        """The next members; None: there are no more."""
        if not self._left:
            return None
        some = [*islice(self._waiting, _BUCKETS_PER_TRIP)]
        if not some:
            yield from self._find()
            some = [*islice(self._waiting, _BUCKETS_PER_TRIP)]
        self._read.update(some)
        replies = yield from deliver([Read(("HVALS", key), key) for key in some])
        members: list[Item] = []
        for key, values in zip(some, replies, strict=True):
            for value in values:
                match = _VALUE.fullmatch(value)
                if not match or int(match[1]) >= MAX_MEMBERS:
                    raise refusal(self._config, Status.DAMAGED, key)
                if int(match[1]) in self._left:
                    self._left.discard(int(match[1]))
                    members.append(_as_given(match[2]))
        return members

    def _find(self) -> Flow[None]:
        """Finds the buckets that have not been read: all, and later those that others were split into meanwhile."""
        keys = self._config.keys
        tree = yield from read_tree(str(self._config.mapping), keys.layout())
        prefix = keys.ids(tree.generation)
        found = [f"{prefix}{bucket}" for bucket in tree.buckets()] if tree.generation else []
        found = [key for key in found if key not in self._read]
        self._waiting = iter(found)
        if not found:
            raise TBloomError(
                f"mapping {self._config.mapping!r}: {len(self._left)} of its ids have no members; was it cleared meanwhile?"
            )


def _as_given(member: bytes) -> Item:
    """The member as ``str``, if it is one in UTF-8."""
    try:
        return member.decode()
    except UnicodeDecodeError:
        return member
