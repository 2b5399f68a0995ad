"""A piece of a slice as the server keeps it: a hash of at most 4,096 chunks, 2^28 ids.

Its ``head`` is its number of ids, its version, and the generation of the counter that it belongs to. The version never comes
again with other content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tbloom.distinct.config import CounterConfig
from tbloom.distinct.exchange import refusal
from tbloom.distinct.roaring import CHUNK, bitmap_of
from tbloom.engine.flow import Command, Flow, Status, chunks, deliver, text

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The ids of a piece.
PIECE = 1 << 28
#: The chunks that one command reads (1 MB), and that one trip does.
_PER_COMMAND, _PER_TRIP = 128, 1024
_HEAD = re.compile(rb"(\d{1,10}) (\d{1,20}) (\d{16})")
_FIELD = re.compile(rb"0|[1-9]\d{0,4}")


class Head(NamedTuple):
    """What is known of a piece without its chunks."""

    config: CounterConfig
    key: str
    piece: int
    ids: int
    version: int
    generation: str
    #: The number of its chunks, and 1; -1: not asked.
    fields: int = -1


def head_of(
    config: CounterConfig, key: str, piece: int, stored: bytes | None, fields: int = -1
) -> Head | None:
    """The head of a piece; None if there is no such piece."""
    if stored is None and fields <= 0:
        return None
    match = _HEAD.fullmatch(stored or b"")
    if not match:
        raise refusal(config, Status.DAMAGED, key)
    ids, version, generation = int(match[1]), int(match[2]), text(match[3])
    return Head(config, key, piece, ids, version, generation, fields)


def ids_of(head: Head, stored: Mapping[bytes, bytes]) -> BitMap:
    """The ids in a piece's chunks."""
    first = head.piece * PIECE // CHUNK
    chunks_of_piece = range(first, first + PIECE // CHUNK)
    try:
        containers = {int(field): data for field, data in stored.items() if _FIELD.fullmatch(field)}
        if len(containers) == len(stored) and all(map(chunks_of_piece.__contains__, containers)):
            return bitmap_of(containers)
    except ValueError:
        pass
    raise refusal(head.config, Status.DAMAGED, head.key)


def groups(heads: Sequence[Head]) -> Iterable[list[Head]]:
    """The pieces, in groups for one trip."""
    group: list[Head] = []
    fields = 0
    for head in heads:
        if group and fields + head.fields > _PER_TRIP:
            yield group
            group, fields = [], 0
        group.append(head)
        fields += head.fields
    if group:
        yield group


def in_parts(key: str) -> Flow[dict[bytes, bytes]]:
    """A large piece's chunks, by their fields."""
    [fields] = yield from deliver([Command(("HKEYS", key))])
    names = sorted({*fields} - {b"head"})
    found: dict[bytes, bytes] = {}
    for trip in chunks(names, _PER_TRIP):
        parts = [*chunks(trip, _PER_COMMAND)]
        replies = yield from deliver([Command(("HMGET", key, *part)) for part in parts])
        for part, reply in zip(parts, replies, strict=True):
            found |= {name: data for name, data in zip(part, reply, strict=True) if data}
    return found
