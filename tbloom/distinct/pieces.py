"""A piece of a slice as the server keeps it: a hash of at most 4,096 chunks, 2^28 ids.

Its ``head`` is its number of ids, its version, and the generation of the counter that it belongs to. The version never comes
again with other content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tbloom.distinct.config import CounterConfig
from tbloom.distinct.refusals import refusal
from tbloom.distinct.roaring import CHUNK, bitmap_of
from tbloom.engine.flow import Command, Flow, Status, chunks, deliver, pairs, text

if TYPE_CHECKING:
    from pyroaring import BitMap

#: The ids of a piece.
PIECE = 1 << 28
#: The chunks that one command reads (1 MB), and that are read together.
_PER_COMMAND, _AT_ONCE = 128, 1024
#: A piece with more chunks than this (2 MB) is read by several commands.
_MAX_WHOLE = 256
_HEAD = re.compile(rb"(\d{1,10}) (\d{1,20}) (\d{16})")
_FIELD = re.compile(rb"0|[1-9]\d{0,4}")
#: The chunks of a piece, by their fields; ``head`` among them.
Stored = dict[bytes, bytes]


class Head(NamedTuple):
    """What is known of a piece without its chunks."""

    config: CounterConfig
    key: str
    piece: int
    ids: int
    version: int
    generation: str
    #: The number of its chunks, and 1.
    fields: int = 0

    @property
    def is_small(self) -> bool:
        """True: one command reads the whole piece."""
        return self.fields <= _MAX_WHOLE

    def now(self, stored: Stored) -> Head | None:
        """The head among these fields; None: the piece is another counter's since, or gone."""
        head = head_of(self.config, self.key, self.piece, stored.get(b"head"))
        return head if head is not None and head.generation == self.generation else None


def head_of(
    config: CounterConfig, key: str, piece: int, stored: bytes | None, fields: int = 0
) -> Head | None:
    """The head of a piece; None if there is no such piece."""
    if stored is None and not fields:
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
    containers = {field: data for field, data in stored.items() if field != b"head"}
    try:
        if all(_FIELD.fullmatch(field) and int(field) in chunks_of_piece for field in containers):
            return bitmap_of({int(field): data for field, data in containers.items()})
    except ValueError:
        pass
    raise refusal(head.config, Status.DAMAGED, head.key)


def fetch(heads: Iterable[Head]) -> Flow[list[tuple[Head, Stored]]]:
    """The fields of each piece."""
    found, small = list[tuple[Head, Stored]](), [list[Head]()]
    for head in heads:
        if not head.is_small:
            found.append((head, (yield from _in_parts(head.key))))
            continue
        if sum(other.fields for other in small[-1]) + head.fields > _AT_ONCE:
            small.append([])
        small[-1].append(head)
    for group in filter(None, small):
        replies = yield from deliver([Command(("HGETALL", head.key)) for head in group])
        found += zip(group, map(pairs, replies), strict=True)
    return found


def _in_parts(key: str) -> Flow[Stored]:
    """A large piece's fields; the head comes last."""
    [fields] = yield from deliver([Command(("HKEYS", key))])
    found: dict[bytes, Any] = {}
    for fields_at_once in chunks(sorted({*fields} - {b"head"}), _AT_ONCE):
        parts = [*chunks(fields_at_once, _PER_COMMAND)]
        replies = yield from deliver([Command(("HMGET", key, *part)) for part in parts])
        for part, reply in zip(parts, replies, strict=True):
            found |= zip(part, reply, strict=True)
    [found[b"head"]] = yield from deliver([Command(("HGET", key, "head"))])
    return {field: data for field, data in found.items() if data}
