"""What members may be, and what another program may have written into a distinct counter's keys."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial

import pytest
import redis

from tbloom import TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import MappingKeys
from tbloom.items import encode, fingerprint
from tests.helpers.contents import keys_of, snapshot
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.stores import DISTINCT

pytestmark = pytest.mark.usefixtures("away_from_midnight")
KEYS = MappingKeys("planted")
PIECE = KEYS.piece("one", "all")
VERBS = PLANTED[DISTINCT].verbs


def _filled(own: redis.Redis) -> tuple[DistinctCounter, DistinctCounter]:
    """Two counters of one mapping with the same members."""
    return PLANTED[DISTINCT].filled(own, 1), DistinctCounter(own, "two", "planted")


def _set(key: str, field: str, value: str | bytes, own: redis.Redis) -> None:
    """Writes a value, or a field of a hash."""
    own.hset(key, field, value) if field else own.set(key, value)


def _lose(pattern: str, own: redis.Redis) -> None:
    own.delete(*own.scan_iter(pattern))


def _set_an_id(own: redis.Redis) -> None:
    [bucket] = own.scan_iter("*:ids:*")
    own.hset(bucket, fingerprint(encode("7")).to_bytes(16, "big"), "1.5")


_CLEARS = {"clear", "clear_mapping"}
_COUNTS = {"count", "info", *_CLEARS}
_OF_CHUNK_0 = {"add", "add_many", "contains", "discard", "merge"}
_HEAD = "1557273600000000 1557273600000000 "
_NO_ENTRIES = ["", "x y {}", _HEAD, _HEAD + '{"name":"x"}', b"\xff"]
_CONTAINERS = {
    "none": b"",
    "another form": b"xab",
    "half an id": b"a123",
    "too many ids": b"a" + bytes(8194),
    "a bitmap without its number": b"b" + bytes(8192),
    "another number of runs": b"r" + struct.pack("<5H", 1, 0, 1, 5, 1),
}
#: What another program did, and the verbs that have an answer nevertheless.
_DAMAGES: dict[str, tuple[Callable[[redis.Redis], None], set[str]]] = {
    **{what: (partial(_set, PIECE, "0", data), _COUNTS) for what, data in _CONTAINERS.items()},
    "no chunk": (partial(_set, PIECE, "x", b"a\1\0"), _COUNTS | _OF_CHUNK_0),
    "a chunk of another piece": (partial(_set, PIECE, "4096", b"a\1\0"), _COUNTS | _OF_CHUNK_0),
    **{
        ascii((key, field, value))[:60]: (partial(_set, key, field, value), _CLEARS)
        for key, field, values in (
            (KEYS.counters(), "one", _NO_ENTRIES),
            (PIECE, "head", ["", "1 2", "-1 2 1557273600000000", "9" * 30 + " 2 3", b"\xff"]),
            (KEYS.members(), "", ["x", "-1", "9" * 30, b"\xff"]),
        )
        for value in values
    },
    "no id": (_set_an_id, {*VERBS} - {"add_many", "contains", "discard", "in"}),
    "the piece is lost": (partial(_lose, PIECE), {*_COUNTS, "count_and", "in"}),
    "the layout is lost": (partial(_lose, KEYS.layout()), _CLEARS),
    "the number of members is lost": (
        partial(_lose, KEYS.members()),
        {*_COUNTS, "count_and", "in", "merge"},
    ),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_what_is_damaged_or_lost_is_an_error_of_who_reads_it(own: redis.Redis, damage: str) -> None:
    """It is tbloom's own, and changes nothing; and ``clear(mapping=True)`` mends it."""
    do, expected = _DAMAGES[damage]
    answered = set()
    for verb, call in VERBS.items():
        one, _ = _filled(own)
        do(own)
        before = snapshot(own, lanes=False)
        try:
            call(one)
            answered.add(verb)
        except TBloomError as error:
            assert re.search("'one'|planted", str(error))  # noqa: PT017 - not each verb raises
            assert verb.startswith("clear") or before == snapshot(own, lanes=False)
        one.clear(mapping=True)
        # What a damaged layout does not name.
        assert all(b":ids:" in key for key in keys_of(own))
        assert all(one.add_many(ITEMS))
        assert len(ITEMS) == one.count()
    assert expected == answered


@pytest.mark.parametrize(
    ("lost", "left", "after"),
    [
        (KEYS.counters(), (0, 0), (50, 0)),
        # That is not noticed: a bucket may be empty.
        ("*:ids:*", (50, 50), (100, 50)),
    ],
)
def test_members_of_a_lost_bucket_or_entry_are_counted_anew(
    own: redis.Redis, lost: str, left: tuple[int, int], after: tuple[int, int]
) -> None:
    one, two = _filled(own)
    _lose(lost, own)
    assert left == (one.count(), two.count())
    assert all(one.add_many(ITEMS))
    assert after == (one.count(), two.count())
