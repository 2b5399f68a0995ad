"""The ids of counters: fetched by plain commands, and kept until they change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from tbloom.distinct.exchange import refusal
from tbloom.distinct.pieces import Head, groups, head_of, ids_of, in_parts
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import Selection
from tbloom.distinct.state import State, StateReader
from tbloom.engine.exchange import MAX_CORRECTIONS, ServerClock, too_many_corrections
from tbloom.engine.flow import Command, Flow, Status, deliver, deliver_all, pairs
from tbloom.engine.forks import BeginsAnew

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The limit of what one reader keeps (bytes of containers), the pieces that were asked for last.
MAX_KEPT = 64 << 20
#: A piece with more chunks than this (2 MB) is read by several commands.
_MAX_WHOLE = 256


class Reader(BeginsAnew):
    """Reads slices of counters through one client; safe to share by threads and tasks."""

    def __init__(self, clock: ServerClock) -> None:
        self._states = StateReader(clock)
        super().__init__()

    def begin(self) -> None:
        """A forked process has a lock of its own."""
        self._lock = Lock()
        #: The version, the ids and the bytes of pieces, by key; those asked for last are at the end.
        self._kept: OrderedDict[str, tuple[int, BitMap, int]] = OrderedDict()
        self._size = 0

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct ids in these slices; without their chunks, if only one slice has ids."""
        state = yield from self._states.read((selection,), self._kept.keys())
        slices = [slice for slice in state.heads[selection].values() if slice]
        if len(slices) <= 1:
            return sum(head.ids for slice in slices for head in slice)
        state, found = yield from self._read((selection,), state)
        return len(_union(state.pieces(selection), found))

    def read(self, selections: Iterable[Selection]) -> Flow[dict[Selection, BitMap]]:
        """The ids of each selection. They must not be changed: they may be kept.

        They are those of one moment, or, of what needs several commands, between the first moment and the last.
        """
        state, found = yield from self._read(tuple(dict.fromkeys(selections)))
        return {one: _union(state.pieces(one), found) for one in state.heads}

    def by_slice(self, selection: Selection) -> Flow[dict[str, BitMap]]:
        """The ids of each slice, oldest first, by label; see ``read``."""
        state, found = yield from self._read((selection,))
        return {label: _union(some, found) for label, some in state.heads[selection].items()}

    def _read(
        self, selections: tuple[Selection, ...], state: State | None = None
    ) -> Flow[tuple[State, dict[str, BitMap]]]:
        """The state, unless it is known; and the ids of its pieces, by key."""
        bitmaps()  # raises an error if pyroaring is missing
        for _ in range(MAX_CORRECTIONS):
            state = state or (yield from self._states.read(selections, self._kept.keys()))
            found = yield from self._fetch(selections, state)
            if found is not None:
                return state, found
            state = None
        raise too_many_corrections(selections[0].config.name, "it was cleared")

    def _fetch(
        self, selections: tuple[Selection, ...], state: State
    ) -> Flow[dict[str, BitMap] | None]:
        """The ids of the pieces, by key; None: a counter was cleared meanwhile."""
        found, missing = self._known(state)
        if not missing:
            return found
        unknown = [head.key for head in missing if head.fields < 0]
        sizes = yield from deliver_all([Command(("HLEN", key)) for key in unknown])
        fields = dict(zip(unknown, sizes, strict=True))
        missing = [head._replace(fields=fields.get(head.key, head.fields)) for head in missing]
        for some in groups([head for head in missing if head.fields <= _MAX_WHOLE]):
            replies = yield from deliver([Command(("HGETALL", head.key)) for head in some])
            for head, reply in zip(some, replies, strict=True):
                stored = pairs(reply)
                now = head_of(head.config, head.key, head.piece, stored.pop(b"head", None), 0)
                if now is None or now.generation != head.generation:
                    return None
                found[head.key] = self._keep(now, stored)
        large = [head for head in missing if head.fields > _MAX_WHOLE]
        if not large:
            return found
        read = {}
        for head in large:
            read[head.key] = yield from in_parts(head.key)
        after = yield from self._states.read(selections)
        versions = {head.key: head.version for one in after.heads for head in after.pieces(one)}
        if after.generations != state.generations:
            return None
        for head in large:
            if head.key not in versions:
                return None
            is_same = versions[head.key] == head.version
            found[head.key] = (self._keep if is_same else ids_of)(head, read[head.key])
        return found

    def _known(self, state: State) -> tuple[dict[str, BitMap], list[Head]]:
        """The ids of the pieces that are kept, by key; and the other pieces."""
        heads = {head.key: head for one in state.heads for head in state.pieces(one)}
        found = {}
        with self._lock:
            for key, head in heads.items():
                kept = self._kept.get(key)
                if kept is not None and kept[0] == head.version:
                    self._kept.move_to_end(key)
                    found[key] = kept[1]
        return found, [head for key, head in heads.items() if key not in found]

    def _keep(self, head: Head, stored: Mapping[bytes, bytes]) -> BitMap:
        """The ids of a piece, which are kept."""
        ids = ids_of(head, stored)
        if len(ids) != head.ids:
            raise refusal(head.config, Status.DAMAGED, head.key)
        size = sum(map(len, stored.values()))
        with self._lock:
            self._size += size - self._kept.pop(head.key, (0, ids, 0))[2]
            self._kept[head.key] = head.version, ids, size
            while self._size > MAX_KEPT:
                self._size -= self._kept.popitem(last=False)[1][2]
        return ids


def _union(heads: Iterable[Head], found: Mapping[str, BitMap]) -> BitMap:
    """The ids of these pieces; of one piece, what is kept."""
    some = [found[head.key] for head in heads]
    return some[0] if len(some) == 1 else bitmaps()().union(*some)
