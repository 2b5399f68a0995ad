"""The ids of counters, read by plain commands.

A slice of a counter is stored as *pieces* of 2^28 ids, each a hash: chunk number -> container, and a ``head``, which has the
piece's number of ids, its version, and the generation of the counter that it belongs to. First a read asks for the
counters' entries, then for the heads of their pieces, and last, if it needs them, for the chunks. Of a counter that is
cleared meanwhile nothing of before is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig, parse_entry, refusal
from tbloom.distinct.roaring import CHUNK, bitmap_of, bitmaps
from tbloom.distinct.selection import Selection
from tbloom.engine.flow import Call, Flow, Status, chunks, corrected, deliver_all, text
from tbloom.engine.server import ServerClock
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The ids of a piece, and the pieces that a slice may have.
PIECE, MAX_PIECES = 1 << 28, 16
#: The commands that are sent together; the chunks that one command reads (1 MB), and such commands.
_COMMANDS, _CHUNKS, _READS = 256, 128, 8
_HEAD = re.compile(rb"(\d{1,10}) (\d{1,20}) (\d{16})")
#: The replies to commands, by their words.
Replies = Mapping[tuple[str, ...], Any]


class Head(NamedTuple):
    """A piece that has ids, without its chunks."""

    config: CounterConfig
    key: str
    piece: int
    ids: int
    generation: str


#: The pieces of each slice that have ids, oldest first, by label.
Slices = dict[str, list[Head]]


class Found(NamedTuple):
    """What was read: pieces; how many ids each counter's mapping has given; and the ids of the pieces, by key."""

    slices: dict[Selection, Slices]
    given: dict[CounterConfig, int]
    ids: dict[str, BitMap]

    def ids_of(self, selection: Selection) -> BitMap:
        """The ids of a selection."""
        if selection.is_everyone:
            return bitmaps()(range(self.given[selection.config]))
        return self.union(_pieces(self.slices[selection]))

    def union(self, heads: Iterable[Head]) -> BitMap:
        """The ids of these pieces."""
        return bitmaps()().union(*(self.ids[head.key] for head in heads))


class Reader:
    """Reads slices of counters; safe to share by threads and tasks."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock

    def count(self, selection: Selection) -> Flow[int]:
        """The number of distinct ids in these slices; without their chunks, if only one slice has ids."""
        found = yield from self.read([selection], lambda of: sum(map(bool, of.values())) > 1)
        if selection.is_everyone:
            return found.given[selection.config]
        if found.ids:
            return len(found.ids_of(selection))
        return sum(head.ids for head in _pieces(found.slices[selection]))

    def read(
        self,
        selections: Iterable[Selection],
        needs_ids: Callable[[Slices], bool] = lambda _: True,
    ) -> Flow[Found]:
        """What these are, between the first moment of the read and its last; the ids of those that need them."""
        some, was_refused = [*dict.fromkeys(selections)], False

        def attempt() -> Flow[Found | None]:
            nonlocal was_refused
            try:
                return (yield from self._attempt(some, needs_ids))
            except TBloomError:
                if was_refused:
                    raise
                was_refused = True  # once it may be of what was changed between two commands
                return None

        return corrected(some[0].config.name, "its slices changed", attempt)

    def _attempt(
        self, selections: list[Selection], needs_ids: Callable[[Slices], bool]
    ) -> Flow[Found | None]:
        """None: it must be asked again, because other slices are live than the client believed, or a counter was cleared."""
        configs = [*dict.fromkeys(one.config for one in selections)]
        got = yield from _ask(words for config in configs for words in _questions(config))
        generations = {config: _generation(config, got) for config in configs}
        given = {config: _given(config, got) for config in configs}
        now = self._clock.now()
        currents = [config.window.slice_at(now) for config in configs if config.window]
        keys = {
            one: {
                label: [one.config.keys.piece(one.config.name, label, piece) for piece in pieces]
                for label in one.labels(now)
            }
            for one in selections
            for pieces in [range(-(-given[one.config] // PIECE))]
        }
        heads = [
            ("HGET", key, "head") for of in keys.values() for some in of.values() for key in some
        ]
        got = yield from _ask([("TIME",), *heads], configs[0].keys.root)
        seconds, microseconds = got["TIME",]
        self._clock.learn(int(seconds) * 1000 + int(microseconds) // 1000)
        if not all(current.start <= self._clock.now() < current.end for current in currents):
            return None
        slices = {
            one: {
                label: _heads(one.config, some, generations[one.config], got)
                for label, some in of.items()
            }
            for one, of in keys.items()
        }
        pieces = [head for of in slices.values() if needs_ids(of) for head in _pieces(of)]
        ids = (yield from _fetch({head.key: head for head in pieces})) if pieces else {}
        return None if ids is None else Found(slices, given, ids)


def _pieces(slices: Slices) -> list[Head]:
    return [head for heads in slices.values() for head in heads]


def _ask(words: Iterable[tuple[str, ...]], root: str = "") -> Flow[Replies]:
    """The replies to these commands; ``root``: a key on the node that is asked for its time."""
    asked = [*dict.fromkeys(words)]
    calls = [Call(each, root if each == ("TIME",) else "") for each in asked]
    return dict(zip(asked, (yield from deliver_all(calls, _COMMANDS)), strict=True))


def _questions(config: CounterConfig) -> Iterable[tuple[str, ...]]:
    keys = config.keys
    yield "GET", keys.root
    yield "HGET", keys.counters(), config.name
    if config.mapping is not None:
        yield "GETRANGE", keys.layout(), "0", "15"
        yield "GET", keys.members()


def _given(config: CounterConfig, got: Replies) -> int:
    """The number of ids that the mapping has given; of integers, that of all."""
    if config.mapping is None:
        return MAX_MEMBERS
    key = config.keys.members()
    members = got["GET", key] or b"0"
    if not members.isdigit() or int(members) > MAX_MEMBERS:
        raise refusal(config, Status.DAMAGED, key)
    return int(members)


def _generation(config: CounterConfig, got: Replies) -> str:
    """The stored generation of the counter; "" if it is not stored."""
    stored = got["GET", config.keys.root]
    if stored is not None and text(stored) != config.stored_mapping:
        raise refusal(config, Status.MISMATCH, stored)
    entry = got["HGET", config.keys.counters(), config.name]
    if entry is None:
        return ""
    generation, of, parameters = parse_entry(entry)
    if parameters != config.stored:
        raise refusal(config, Status.MISMATCH, parameters, 0)
    if config.mapping is not None and of != text(got["GETRANGE", config.keys.layout(), "0", "15"]):
        raise refusal(config, Status.OTHER_IDS, of)
    return generation


def _heads(config: CounterConfig, keys: list[str], generation: str, got: Replies) -> list[Head]:
    """The pieces of a slice that have ids."""
    heads = [_head(config, key, piece, got["HGET", key, "head"]) for piece, key in enumerate(keys)]
    return [head for head in heads if head and head.ids and head.generation == generation]


def _head(config: CounterConfig, key: str, piece: int, stored: bytes | None) -> Head | None:
    """The head of a piece; None if there is no such piece."""
    if stored is None:
        return None
    match = _HEAD.fullmatch(stored)
    if not match:
        raise refusal(config, Status.DAMAGED, key)
    return Head(config, key, piece, int(match[1]), text(match[3]))


def _fetch(heads: Mapping[str, Head]) -> Flow[dict[str, BitMap] | None]:
    """The ids of each piece; None: a counter was cleared meanwhile."""
    bitmaps()  # raises an error if pyroaring is missing
    fields = yield from deliver_all([Call(("HKEYS", key)) for key in heads], _COMMANDS)
    parts = [
        (head, some)
        for head, names in zip(heads.values(), fields, strict=True)
        for some in chunks(sorted({*names} - {b"head"}), _CHUNKS)
    ]
    calls = [Call(("HMGET", head.key, "head", *some)) for head, some in parts]
    replies = yield from deliver_all(calls, _READS)
    containers: dict[str, dict[bytes, bytes]] = {key: {} for key in heads}
    for (head, some), (stored, *data) in zip(parts, replies, strict=True):
        now = _head(head.config, head.key, head.piece, stored)
        if now is None or now.generation != head.generation:
            return None
        read = zip(some, data, strict=True)
        containers[head.key] |= {name: each for name, each in read if each is not None}
    return {key: _ids_of(head, containers[key]) for key, head in heads.items()}


def _ids_of(head: Head, containers: Mapping[bytes, bytes]) -> BitMap:
    """The ids in a piece's chunks."""
    first = head.piece * PIECE // CHUNK
    try:
        by_chunk = {int(field): data for field, data in containers.items()}
        if all(0 <= chunk - first < PIECE // CHUNK for chunk in by_chunk):
            return bitmap_of(by_chunk)
    except ValueError:
        pass
    raise refusal(head.config, Status.DAMAGED, head.key)
