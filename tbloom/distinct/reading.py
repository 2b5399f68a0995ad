"""The ids of counters: fetched by plain commands, and kept until they change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from tbloom.distinct.pieces import Head, Stored, fetch, ids_of
from tbloom.distinct.refusals import check_default, refusal
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import Selection
from tbloom.distinct.state import State, read_state
from tbloom.engine.clock import ServerClock
from tbloom.engine.flow import Flow, Status, corrected
from tbloom.engine.forks import BeginsAnew
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The limit of what one reader keeps (bytes of containers), the pieces that were asked for last.
MAX_KEPT = 64 << 20


class Reader(BeginsAnew):
    """Reads slices of counters through one client; safe to share by threads and tasks."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._large: set[str] = set()
        super().__init__()

    def begin(self) -> None:
        """A forked process has a lock of its own."""
        self._lock = Lock()
        #: The version, the ids and the bytes of pieces, by key; those asked for last are at the end.
        self._kept: OrderedDict[str, tuple[int, BitMap, int]] = OrderedDict()
        self._size = 0

    def heads(self, selection: Selection) -> Flow[dict[str, list[Head]]]:
        """The pieces of each slice that have ids, oldest first, by label."""
        state, _ = yield from self._read((selection,), lambda _: False)
        return state.pieces[selection]

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct ids in these slices; without their chunks, if only one slice has ids."""
        state, found = yield from self._read(
            (selection,), lambda state: sum(map(bool, state.pieces[selection].values())) > 1
        )
        if selection.is_everyone:
            return state.given[selection.config]
        heads = _pieces(state.pieces[selection])
        return len(_union(heads, found)) if found else sum(head.ids for head in heads)

    def read(self, selections: Iterable[Selection]) -> Flow[dict[Selection, BitMap]]:
        """The ids of each selection. They must not be changed: they may be kept.

        They are those of one moment, or, of what needs several commands, between the first moment and the last.
        """
        state, found = yield from self._read(tuple(dict.fromkeys(selections)))
        return {
            one: bitmaps()(range(state.given[one.config]))
            if one.is_everyone
            else _union(_pieces(slices), found)
            for one, slices in state.pieces.items()
        }

    def by_slice(self, selection: Selection) -> Flow[dict[str, BitMap]]:
        """The ids of each slice, oldest first, by label; see ``read``."""
        state, found = yield from self._read((selection,))
        return {label: _union(heads, found) for label, heads in state.pieces[selection].items()}

    def _read(
        self, selections: tuple[Selection, ...], needs_ids: Callable[[State], bool] = lambda _: True
    ) -> Flow[tuple[State, dict[str, BitMap]]]:
        """The state; and the ids of its pieces, by key, if they are needed."""
        refused = ""

        def attempt() -> Flow[tuple[State, dict[str, BitMap]] | None]:
            nonlocal refused
            try:
                state = yield from read_state(selections, self._clock, self._large)
            except TBloomError as error:
                # Once it may be of a piece that was made between two of the commands.
                if str(error) == refused:
                    raise
                refused = str(error)
                return None
            found = {} if state is None or not needs_ids(state) else (yield from self._fetch(state))
            return None if state is None or found is None else (state, found)

        name = selections[0].config.name
        state, found = yield from corrected(name, "its slices changed", attempt)
        for one, slices in state.pieces.items():
            if not any(slices.values()):
                yield from check_default(one.config)
        return state, found

    def _fetch(self, state: State) -> Flow[dict[str, BitMap] | None]:
        """The ids of the pieces, by key; None: a counter was cleared meanwhile."""
        bitmaps()  # raises an error if pyroaring is missing
        heads = {head.key: head for slices in state.pieces.values() for head in _pieces(slices)}
        found = self._known(heads)
        missing = [head for key, head in heads.items() if key not in found]
        for head, stored in (yield from fetch(missing)):
            now = head.now(stored)
            if now is None:
                return None
            # What is read in parts is of one moment if nothing has changed meanwhile.
            is_of_one_moment = head.is_small or now.version == head.version
            found[head.key] = (self._keep if is_of_one_moment else ids_of)(now, stored)
        return found

    def _known(self, heads: dict[str, Head]) -> dict[str, BitMap]:
        """The ids of the pieces that are kept, by key."""
        found = {}
        with self._lock:
            for key, head in heads.items():
                kept = self._kept.get(key)
                if kept is not None and kept[0] == head.version:
                    self._kept.move_to_end(key)
                    found[key] = kept[1]
        return found

    def _keep(self, head: Head, stored: Stored) -> BitMap:
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


def _pieces(slices: Mapping[str, Iterable[Head]]) -> list[Head]:
    return [head for heads in slices.values() for head in heads]


def _union(heads: Iterable[Head], found: Mapping[str, BitMap]) -> BitMap:
    """The ids of these pieces; of one piece, what is kept."""
    some = [found[head.key] for head in heads]
    return some[0] if len(some) == 1 else bitmaps()().union(*some)
