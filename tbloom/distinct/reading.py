"""The slices of a counter that are read, and the reading of their ids by plain commands.

A slice of a counter is stored as *pieces* of 2^28 ids, each a hash: chunk number -> container, and a ``head``, which has the
piece's number of ids, its version, and the generation of the counter that it belongs to. First a read asks for the
counters' entries, then for the heads of their pieces, and last, if it needs them, for the chunks. If a counter is
cleared meanwhile, its earlier ids are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, NamedTuple

from tbloom.arguments import check_at, check_within
from tbloom.distinct.config import MAX_MEMBERS, CounterConfig, parse_entry, refusal
from tbloom.distinct.roaring import CHUNK, bitmap_of, bitmaps
from tbloom.engine.flow import (
    Call,
    Flow,
    Status,
    chunks,
    corrected,
    request,
    request_all,
    text,
    together,
)
from tbloom.engine.server import ServerClock
from tbloom.errors import ConfigError, TBloomError
from tbloom.window import WHOLE, to_ms

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The ids of a piece, and the pieces that a slice may have.
PIECE, MAX_PIECES = 1 << 28, 16
#: Commands that are sent together.
_COMMANDS = 256
#: The chunks that one command reads (1 MB), and such commands that are sent together.
_CHUNKS, _READS = 128, 8
_HEAD = re.compile(rb"(\d{1,10}) (\d{1,20}) (\d{16})")


#: An instant, a day in the counter's time zone, or a slice's label.
At = datetime | date | str


@dataclass(frozen=True, slots=True)
class Selection:
    """Some slices of a counter: the newest ones, or the slice with this label."""

    config: CounterConfig
    newest: int = 1
    label: str | None = None

    def labels(self, now: int) -> list[str]:
        """Return the slices' labels, oldest first."""
        window = self.config.window
        if self.label is not None or window is None:
            return [self.label or WHOLE]
        return [slice.label for slice in window.live(now)[-self.newest :]]


_NO_SLICES = "none: the counter has no slices (see granularity)"


def select(config: CounterConfig, within: int | None = None) -> Selection:
    """Return all live slices, or the newest ``within``."""
    if config.window is not None:
        return Selection(config, check_within(within, config.window.slices))
    if within is not None:
        raise ConfigError("within", within, _NO_SLICES)
    return Selection(config)


def label_of(config: CounterConfig, at: At) -> str:
    """Return the label of the slice that contains ``at``, or ``at`` if it is a label."""
    window = config.window
    if window is None:
        raise ConfigError("at", at, _NO_SLICES)
    if isinstance(at, str) and window.is_label(at):
        return at
    if not isinstance(at, date):
        example = window.slice_at(0).label
        expected = f"a slice's label such as {example!r}, a date, or a datetime with a time zone"
        raise ConfigError("at", at, expected)
    if isinstance(at, datetime):
        ends = [at]
    else:  # the day's first and its last instant
        ends = [datetime.combine(at, end, window.zone) for end in (time.min, time.max)]
    for end in ends:
        check_at(end)
    first, last = (window.slice_at(to_ms(end)).label for end in (ends[0], ends[-1]))
    if first != last:
        expected = f"a datetime: the day is in slices {first!r} to {last!r}"
        raise ConfigError("at", at, expected)
    return first


class Head(NamedTuple):
    """A piece that has ids, without its chunks."""

    config: CounterConfig
    key: str
    piece: int
    ids: int
    generation: str


#: The pieces of each slice that have ids, oldest first, by label.
Slices = dict[str, list[Head]]


class Stored(NamedTuple):
    """A counter's generation ("": it is not stored), its mapping's, and how many ids that has given; of integers, all."""

    generation: str
    mapping: str
    given: int


class Found(NamedTuple):
    """The result of a read: what is stored of each counter, its pieces, and the ids of pieces by key."""

    stored: dict[CounterConfig, Stored]
    slices: dict[Selection, Slices]
    ids: dict[str, BitMap]

    def ids_of(self, selection: Selection) -> BitMap:
        """Return the ids of a selection."""
        heads = _pieces(self.slices[selection])
        return bitmaps()().union(*(self.ids[head.key] for head in heads))


class Reader:
    """Reads slices of counters; safe to share by threads and tasks."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock

    def count(self, selection: Selection) -> Flow[int]:
        """Return the number of distinct ids in these slices. Read their chunks only if several slices have ids."""
        found = yield from self.read([selection], lambda of: sum(map(bool, of.values())) > 1)
        if found.ids:
            return len(found.ids_of(selection))
        return sum(head.ids for head in _pieces(found.slices[selection]))

    def read(
        self,
        selections: Iterable[Selection],
        needs_ids: Callable[[Slices], bool] = lambda _: True,
    ) -> Flow[Found]:
        """Read these selections, each at some moment of the read, and the ids of those that need them."""
        some, was_refused = [*dict.fromkeys(selections)], False

        def attempt() -> Flow[Found | None]:
            nonlocal was_refused
            try:
                return (yield from self._attempt(some, needs_ids))
            except TBloomError:
                if was_refused:
                    raise
                was_refused = True  # once, because a change between two commands looks like damage
                return None

        return corrected(some[0].config.name, "its slices changed", attempt)

    def _attempt(
        self, selections: list[Selection], needs_ids: Callable[[Slices], bool]
    ) -> Flow[Found | None]:
        """Read once. Return None if other slices are live than the client believed, or a counter was cleared."""
        configs = [*dict.fromkeys(one.config for one in selections)]
        of_counters = yield from together(*map(_stored, configs))
        stored, now = dict(zip(configs, of_counters, strict=True)), self._clock.now()
        currents = [config.window.slice_at(now) for config in configs if config.window]
        slices: dict[Selection, Slices] = {
            one: {label: [] for label in one.labels(now)} for one in selections
        }
        places = [
            (one, label, piece, one.config.keys.piece(one.config.name, label, piece))
            for one, of in slices.items()
            for label in of
            for piece in range(-(-stored[one.config].given // PIECE))
        ]
        calls = [Call(("HGET", key, "head")) for *_, key in places]
        # The time of the node that has a counter.
        server_time, *heads = yield from request_all(
            [Call(("TIME",), configs[0].keys.root), *calls], _COMMANDS
        )
        self._clock.learn(int(server_time[0]) * 1000 + int(server_time[1]) // 1000)
        if not all(current.start <= self._clock.now() < current.end for current in currents):
            return None
        for (one, label, piece, key), reply in zip(places, heads, strict=True):
            head = _head(one.config, key, piece, reply)
            if head and head.ids and head.generation == stored[one.config].generation:
                slices[one][label].append(head)
        pieces = [head for of in slices.values() if needs_ids(of) for head in _pieces(of)]
        ids = (yield from _fetch({head.key: head for head in pieces})) if pieces else {}
        return None if ids is None else Found(stored, slices, ids)


def _pieces(slices: Slices) -> list[Head]:
    return [head for heads in slices.values() for head in heads]


def _stored(config: CounterConfig) -> Flow[Stored]:
    """Return what is stored about the counter. Raise an error if its parameters or its mapping are other ones."""
    keys = config.keys
    calls = [Call(("GET", keys.root)), Call(("HGET", keys.counters(), config.name))]
    if config.mapping is not None:
        calls += [Call(("GETRANGE", keys.layout(), "0", "15")), Call(("GET", keys.members()))]
    stored, entry, *of_mapping = yield from request(calls)
    if stored is not None and text(stored) != config.stored_mapping:
        raise refusal(config, Status.MISMATCH, stored)
    generation, of, parameters = ("", "", config.stored) if entry is None else parse_entry(entry)
    if parameters != config.stored:
        raise refusal(config, Status.MISMATCH, parameters, 0)
    if not of_mapping:
        return Stored(generation, "", MAX_MEMBERS)
    mapping, members = text(of_mapping[0]), of_mapping[1] or b"0"
    if generation and of != mapping:
        raise refusal(config, Status.OTHER_IDS, of)
    if not members.isdigit() or int(members) > MAX_MEMBERS:
        raise refusal(config, Status.DAMAGED, keys.members())
    return Stored(generation, mapping, int(members))


def _head(config: CounterConfig, key: str, piece: int, stored: bytes | None) -> Head | None:
    """Return the head of a piece, or None if there is no such piece."""
    if stored is None:
        return None
    match = _HEAD.fullmatch(stored)
    if not match:
        raise refusal(config, Status.DAMAGED, key)
    return Head(config, key, piece, int(match[1]), text(match[3]))


def _fetch(heads: Mapping[str, Head]) -> Flow[dict[str, BitMap] | None]:
    """Return the ids of each piece, or None if a counter was cleared meanwhile."""
    bitmaps()  # raises an error if pyroaring is missing
    fields = yield from request_all([Call(("HKEYS", key)) for key in heads], _COMMANDS)
    parts = [
        (head, some)
        for head, names in zip(heads.values(), fields, strict=True)
        for some in chunks(sorted({*names} - {b"head"}), _CHUNKS)
    ]
    calls = [Call(("HMGET", head.key, "head", *some)) for head, some in parts]
    replies = yield from request_all(calls, _READS)
    containers: dict[str, dict[bytes, bytes]] = {key: {} for key in heads}
    for (head, some), (stored, *data) in zip(parts, replies, strict=True):
        now = _head(head.config, head.key, head.piece, stored)
        if now is None or now.generation != head.generation:
            return None
        read = zip(some, data, strict=True)
        containers[head.key] |= {name: each for name, each in read if each is not None}
    return {key: _ids_of(head, containers[key]) for key, head in heads.items()}


def _ids_of(head: Head, containers: Mapping[bytes, bytes]) -> BitMap:
    """Return the ids in a piece's chunks."""
    first = head.piece * PIECE // CHUNK
    try:
        by_chunk = {int(field): data for field, data in containers.items()}
        if all(0 <= chunk - first < PIECE // CHUNK for chunk in by_chunk):
            return bitmap_of(by_chunk)
    except ValueError:
        pass
    raise refusal(head.config, Status.DAMAGED, head.key)
