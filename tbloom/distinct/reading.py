"""The ids of counters: fetched by plain commands, and kept until they change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from tbloom.distinct.exchange import refusal
from tbloom.distinct.pieces import Head, groups, head_of, ids_of, in_parts
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import Selection
from tbloom.distinct.state import State, StateReader
from tbloom.engine.exchange import (
    CLOCK_CHANGED,
    MAX_CORRECTIONS,
    ServerClock,
    too_many_corrections,
)
from tbloom.engine.flow import CALLS_AT_ONCE, Flow, Read, Status, chunks, deliver
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
        self._clock, self._states = clock, StateReader(clock)
        super().__init__()

    def begin(self) -> None:
        """A forked process has a lock of its own."""
        self._lock = Lock()
        #: The version, the ids and the bytes of pieces, by key; those asked for last are at the end.
        self._kept: OrderedDict[str, tuple[int, BitMap, int]] = OrderedDict()
        self._size = 0

    def labels(self, selection: Selection) -> list[str]:
        """The labels of the selection's slices, by the server's clock as far as known."""
        return selection.labels(self._clock.now())

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct ids in these slices; without their chunks, if only one slice has ids."""
        state = yield from self._current((selection,))
        slices = [slice for slice in state.heads[0] if slice]
        if len(slices) <= 1:
            return sum(head.ids for slice in slices for head in slice)
        found = yield from self._ids((selection,), state)
        return len(found[selection])

    def read(self, selections: Iterable[Selection]) -> Flow[dict[Selection, BitMap]]:
        """The ids of each selection. They must not be changed: they may be kept.

        They are those of one moment, or, of what needs several commands, between the first moment and the last.
        """
        wanted = tuple(dict.fromkeys(selections))
        bitmaps()  # raises an error if pyroaring is missing
        return (yield from self._ids(wanted, (yield from self._current(wanted))))

    def _ids(
        self, selections: tuple[Selection, ...], state: State
    ) -> Flow[dict[Selection, BitMap]]:
        for _ in range(MAX_CORRECTIONS):
            found = yield from self._fetch(selections, state)
            if found is not None:
                return {
                    selection: _union([found[head.key] for slice in some for head in slice])
                    for selection, some in zip(selections, state.heads, strict=True)
                }
            state = yield from self._current(selections)
        raise too_many_corrections(selections[0].config.name, "it was cleared")

    def _current(self, selections: tuple[Selection, ...]) -> Flow[State]:
        """The state at one moment within the slices that it names."""
        for _ in range(MAX_CORRECTIONS):
            state = yield from self._states.read(selections, self._kept.keys())
            if state is not None:
                return state
        raise too_many_corrections(selections[0].config.name, CLOCK_CHANGED)

    def _fetch(
        self, selections: tuple[Selection, ...], state: State
    ) -> Flow[dict[str, BitMap] | None]:
        """The ids of the pieces, by key; None: a counter was cleared meanwhile."""
        found, missing = self._known(state.pieces.values())
        missing = yield from _with_fields(missing)
        large = [head for head in missing if head.fields > _MAX_WHOLE]
        small = [head for head in missing if head.fields <= _MAX_WHOLE]
        for some in groups(small):
            replies = yield from deliver([Read(("HGETALL", head.key), head.key) for head in some])
            for head, reply in zip(some, replies, strict=True):
                stored = reply if isinstance(reply, dict) else dict(zip(*[iter(reply)] * 2))  # noqa: B905
                now = head_of(head.config, head.key, head.piece, stored.pop(b"head", None), 0)
                if now is None or now.generation != head.generation:
                    return None
                found[head.key] = self._keep(now, stored)
        if not large:
            return found
        read = {}
        for head in large:
            read[head.key] = yield from in_parts(head.key)
        after = yield from self._states.read(selections, ())
        if after is None or after.generations != state.generations:
            return None
        heads = after.pieces
        for head in large:
            if head.key not in heads:
                return None
            if heads[head.key].version == head.version:
                found[head.key] = self._keep(head, read[head.key])
            else:
                found[head.key] = ids_of(head, read[head.key])
        return found

    def _known(self, heads: Iterable[Head]) -> tuple[dict[str, BitMap], list[Head]]:
        """The ids of the pieces that are kept, by key; and the other pieces."""
        found, missing = {}, []
        with self._lock:
            for head in heads:
                version, ids, _ = self._kept.get(head.key, (-1, None, 0))
                if version == head.version and ids is not None:
                    self._kept.move_to_end(head.key)
                    found[head.key] = ids
                else:
                    missing.append(head)
        return found, missing

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


def _with_fields(heads: Sequence[Head]) -> Flow[list[Head]]:
    """The heads, with the number of fields where that was not asked."""
    unknown = [head.key for head in heads if head.fields < 0]
    sizes: dict[str, int] = {}
    for keys in chunks(unknown, CALLS_AT_ONCE):
        replies = yield from deliver([Read(("HLEN", key), key) for key in keys])
        sizes |= dict(zip(keys, replies, strict=True))
    return [head._replace(fields=sizes.get(head.key, head.fields)) for head in heads]


def _union(some: Sequence[BitMap]) -> BitMap:
    return some[0] if len(some) == 1 else bitmaps()().union(*some)
