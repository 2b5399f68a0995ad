"""What counters have stored: fetched by plain commands, and kept until it changes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from tbloom.distinct.config import CounterConfig, parse_entry
from tbloom.distinct.exchange import refusal
from tbloom.distinct.pieces import MAX_PIECES, PIECE, Head, groups, head_of, ids_of, in_parts
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import Selection
from tbloom.engine.exchange import (
    CLOCK_CHANGED,
    MAX_CORRECTIONS,
    ServerClock,
    too_many_corrections,
)
from tbloom.engine.flow import Flow, Read, Status, chunks, deliver, text
from tbloom.engine.forks import BeginsAnew

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The limit of what one reader keeps (bytes of containers), the pieces that were asked for last.
MAX_KEPT = 64 << 20
#: A piece with more chunks than this (2 MB) is read by several commands.
_MAX_WHOLE = 256
_CALLS_PER_TRIP = 256
_NUMBER = re.compile(rb"\d{1,10}")


class _State(NamedTuple):
    """The generations of counters, and their pieces with ids: by selection and slice."""

    generations: dict[CounterConfig, str]
    heads: list[list[list[Head]]]

    @property
    def all(self) -> dict[str, Head]:
        """All pieces, by key."""
        return {head.key: head for some in self.heads for slice in some for head in slice}


class Reader(BeginsAnew):
    """Reads slices of counters through one client; safe to share by threads and tasks."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        #: The pieces that a slice of a mapping's counters may have, by the mapping's key.
        self._pieces: dict[str, int] = {}
        super().__init__()

    def begin(self) -> None:
        """A forked process has a lock of its own."""
        self._lock = Lock()
        #: The version, the ids and the bytes of pieces, by key; those asked for last are at the end.
        self._kept: OrderedDict[str, tuple[int, BitMap, int]] = OrderedDict()
        self._size = 0

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct ids in these slices; without their chunks, if only one slice has ids."""
        state = yield from self._current([selection])
        slices = [slice for slice in state.heads[0] if slice]
        if len(slices) <= 1:
            return sum(head.ids for slice in slices for head in slice)
        found = yield from self._ids([selection], state)
        return len(found[selection])

    def read(self, selections: Iterable[Selection]) -> Flow[dict[Selection, BitMap]]:
        """The ids of each selection. They must not be changed: they may be kept.

        They are those of one moment, or, of what needs several commands, between the first moment and the last.
        """
        wanted = [*dict.fromkeys(selections)]
        bitmaps()  # raises an error if pyroaring is missing
        return (yield from self._ids(wanted, (yield from self._current(wanted))))

    def _ids(
        self, selections: Sequence[Selection], state: _State
    ) -> Flow[dict[Selection, BitMap]]:
        none = bitmaps()()
        for _ in range(MAX_CORRECTIONS):
            found = yield from self._fetch(selections, state)
            if found is not None:
                return {
                    selection: none.union(*[found[head.key] for slice in some for head in slice])
                    for selection, some in zip(selections, state.heads, strict=True)
                }
            state = yield from self._current(selections)
        raise too_many_corrections(selections[0].config.name, "it was cleared")

    def _current(self, selections: Sequence[Selection]) -> Flow[_State]:
        """The state at one moment within the slices that it names."""
        for _ in range(MAX_CORRECTIONS):
            state = yield from self._state(selections)
            if state is not None:
                return state
        raise too_many_corrections(selections[0].config.name, CLOCK_CHANGED)

    def _state(self, selections: Sequence[Selection]) -> Flow[_State | None]:
        """The state; None: other slices are live than the client believes, or there are more pieces."""
        now = self._clock.now()
        configs = [*dict.fromkeys(selection.config for selection in selections)]
        roots = {config.keys.root: config for config in configs}
        pieces = {
            root: self._pieces.get(root, 1) if config.mapping is not None else MAX_PIECES
            for root, config in roots.items()
        }
        keys = [
            [
                [
                    (piece, selection.config.keys.piece(selection.config.name, label, piece))
                    for piece in range(pieces[selection.config.keys.root])
                ]
                for label in selection.labels(now)
            ]
            for selection in selections
        ]
        asked: dict[tuple[str, str], Read] = {
            ("TIME", ""): Read(("TIME",), configs[0].keys.root),
            **{("GET", key): Read(("GET", key), key) for key in roots},
        }
        for config in roots.values():
            if config.mapping is not None:
                layout, members = config.keys.layout(), config.keys.members()
                asked["GETRANGE", layout] = Read(("GETRANGE", layout, "0", "15"), layout)
                asked["GET", members] = Read(("GET", members), members)
        for config in configs:
            key = config.keys.counters()
            asked[key, config.name] = Read(("HGET", key, config.name), key)
        for key in dict.fromkeys(key for some in keys for slice in some for _, key in slice):
            asked["HGET", key] = Read(("HGET", key, "head"), key)
            asked["HLEN", key] = Read(("HLEN", key), key)
        replies: list[Any] = []
        for some in chunks([*asked.values()], _CALLS_PER_TRIP):
            replies += yield from deliver(some)
        got = dict(zip(asked, replies, strict=True))

        seconds, microseconds = got["TIME", ""]
        self._clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)
        now_there = self._clock.now()
        generations = {}
        for config in configs:
            generations[config] = self._generation(config, got)
        for root, config in roots.items():
            if config.mapping is not None:
                most = self._most_pieces(config, got)
                if most > pieces[root]:
                    self._pieces[root] = most
                    return None
        currents = [current for each in selections if (current := each.current(now))]
        if any(not current.start <= now_there < current.end for current in currents):
            return None
        heads = [
            [
                self._heads(selection.config, slice, generations[selection.config], got)
                for slice in some
            ]
            for selection, some in zip(selections, keys, strict=True)
        ]
        return _State(generations, heads)

    def _generation(self, config: CounterConfig, got: Mapping[tuple[str, str], Any]) -> str:
        """The stored generation of the counter; "" if it is not stored."""
        stored = got["GET", config.keys.root]
        if stored is not None and text(stored) != config.stored_mapping:
            raise refusal(config, Status.MISMATCH, stored)
        entry = got[config.keys.counters(), config.name]
        if entry is None:
            return ""
        generation, of, parameters = parse_entry(entry)
        if parameters != config.stored:
            raise refusal(config, Status.MISMATCH, parameters, 0)
        if config.mapping is not None and of != text(got["GETRANGE", config.keys.layout()]):
            raise refusal(config, Status.OTHER_IDS, of)
        return generation

    def _most_pieces(self, config: CounterConfig, got: Mapping[tuple[str, str], Any]) -> int:
        key = config.keys.members()
        members = got["GET", key] or b"0"
        if not _NUMBER.fullmatch(members):
            raise refusal(config, Status.DAMAGED, key)
        return min(max(int(members) - 1, 0) // PIECE + 1, MAX_PIECES)

    def _heads(
        self,
        config: CounterConfig,
        slice: Sequence[tuple[int, str]],
        generation: str,
        got: Mapping[tuple[str, str], Any],
    ) -> list[Head]:
        """The heads of a slice's pieces that have ids."""
        found = []
        for piece, key in slice:
            head = head_of(config, key, piece, got["HGET", key], got["HLEN", key])
            if head is not None and text(head.generation) == generation:
                if head.ids:
                    found.append(head)
            elif generation and config.window is None and not piece:  # made with the entry
                raise refusal(config, Status.DAMAGED, key)
        return found

    def _fetch(
        self, selections: Sequence[Selection], state: _State
    ) -> Flow[dict[str, BitMap] | None]:
        """The ids of the pieces, by key; None: a counter was cleared meanwhile."""
        found, missing = self._known(state.all.values())
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
        after = yield from self._state(selections)
        if after is None or after.generations != state.generations:
            return None
        heads = after.all
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
