"""What members may be, and what another program may have written into a distinct counter's keys."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest
import redis

from tbloom import TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import MappingKeys
from tbloom.items import encode, fingerprint
from tests.helpers.contents import keys_of, snapshot
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.ids import ids_of
from tests.helpers.stores import DISTINCT

pytestmark = pytest.mark.usefixtures("away_from_midnight")
KEYS = MappingKeys("planted")
PIECE = KEYS.piece("one", "all")
VERBS = PLANTED[DISTINCT].verbs


def _filled(own: redis.Redis) -> tuple[DistinctCounter, DistinctCounter]:
    """Two counters of one mapping with the same members."""
    return PLANTED[DISTINCT].filled(own, 1), DistinctCounter(own, "two", "planted")


def _ends_clearly(own: redis.Redis, damage: Callable[[], Any]) -> set[str]:
    """Each verb after the damage: its error is tbloom's and changes nothing, and clear(mapping=True) mends it.

    Returns the verbs that had an answer.
    """
    answered = set()
    for verb, call in VERBS.items():
        one, _ = _filled(own)
        damage()
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
    return answered


_HEAD = "1557273600000000 1557273600000000 "
_NO_ENTRIES = ["", "x y {}", _HEAD, _HEAD + '{"name":"x"}', b"\xff"]


def test_a_counter_whose_entry_is_none_is_cleared_alone(own: redis.Redis) -> None:
    for entry in _NO_ENTRIES:
        one, two = _filled(own)
        own.hset(KEYS.counters(), "one", entry)
        one.clear()
        assert [True, 1, 50] == [one.add("7"), one.count(), two.count()]


@pytest.mark.parametrize("name", ["", b"\xff", "three"], ids=ascii)
def test_no_field_hinders_a_clear_of_the_mapping(own: redis.Redis, name: str | bytes) -> None:
    """A name that is none, or another program's entry."""
    one, _ = _filled(own)
    own.hset(KEYS.counters(), name, b"\xff")
    one.clear(mapping=True)
    assert [] == keys_of(own)
    assert one.add("7")


_CONTAINERS = {
    "none": ("0", b""),
    "another form": ("0", b"xab"),
    "half an id": ("0", b"a123"),
    "too many ids": ("0", b"a" + bytes(8194)),
    "a bitmap without its number": ("0", b"b" + bytes(8192)),
    "another number of runs": ("0", b"r" + struct.pack("<5H", 1, 0, 1, 5, 1)),
    "no chunk": ("x", b"a\1\0"),
    "a chunk of another piece": ("4096", b"a\1\0"),
}


@pytest.mark.parametrize("container", _CONTAINERS)
def test_a_container_that_is_none_is_refused(own: redis.Redis, container: str) -> None:
    field, data = _CONTAINERS[container]
    answered = _ends_clearly(own, lambda: own.hset(PIECE, field, data))
    of_chunk_0 = set() if field == "0" else {"add", "add_many", "contains", "discard", "merge"}
    assert {"count", "info", "clear", "clear_mapping"} | of_chunk_0 == answered


_NO_VALUES = [
    *((KEYS.counters(), "one", entry) for entry in _NO_ENTRIES),
    *((PIECE, "head", head) for head in ("", "1 2", "-1 2 1557273600000000", "9" * 30 + " 2 3", b"\xff")),
    *((KEYS.members(), "", members) for members in ("x", "-1", "9" * 30, b"\xff")),
]  # fmt: skip


@pytest.mark.parametrize(("key", "field", "value"), _NO_VALUES, ids=lambda text: ascii(text)[:60])
def test_an_entry_a_head_or_a_number_of_members_that_is_none_is_refused(
    own: redis.Redis, key: str, field: str, value: str | bytes
) -> None:
    def damage() -> None:
        own.hset(key, field, value) if field else own.set(key, value)

    assert {"clear", "clear_mapping"} == _ends_clearly(own, damage)


def test_an_id_that_is_none_is_refused(own: redis.Redis) -> None:
    field = fingerprint(encode("7")).to_bytes(16, "big")

    def damage() -> None:
        [bucket] = own.scan_iter("*:ids:*")
        own.hset(bucket, field, "1.5")

    assert {*VERBS} - {"add_many", "contains", "discard", "in"} == _ends_clearly(own, damage)


# What is lost: an error, or what was there is counted anew.


def test_a_lost_layout_or_number_of_members_is_an_error(own: redis.Redis) -> None:
    for key in (KEYS.layout(), KEYS.members()):
        one, two = _filled(own)
        own.delete(key)
        before = snapshot(own, lanes=False)
        for counter in (one, two):
            with pytest.raises(TBloomError, match=r"the server has lost .* 'planted'|planted"):
                counter.add("7")
        assert before == snapshot(own, lanes=False)
        one.clear(mapping=True)
        assert all(one.add_many(ITEMS))


def test_counters_without_their_mapping_are_named_until_they_are_cleared(own: redis.Redis) -> None:
    one, two = _filled(own)
    own.delete(KEYS.layout(), KEYS.members(), *own.scan_iter("*:ids:*"))
    two.clear()
    assert all(two.add_many(ITEMS))
    for verb in ("add", "contains", "count", "count_and", "info"):
        with pytest.raises(TBloomError, match="'one': the server has lost the ids"):
            VERBS[verb](one)
    assert len(ITEMS) == two.count()
    one.clear()
    assert [True, False] == [one.add("7"), one.add("7")]


def test_the_lost_piece_of_a_counter_without_slices_is_an_error(own: redis.Redis) -> None:
    """Of what changes it; a count has no more of it."""
    answered = _ends_clearly(own, lambda: own.delete(PIECE))
    assert {"clear", "clear_mapping", "count", "count_and", "in", "info"} == answered


def test_a_lost_slice_is_forgotten_and_the_others_are_counted(own: redis.Redis) -> None:
    own.flushall()
    one = DistinctCounter(own, "one", "planted", granularity="d", slices=2)
    one.add_many(ITEMS)
    own.delete(*own.scan_iter("*:chunks:*"))
    assert 0 == one.count()
    assert all(one.add_many(ITEMS))


def test_counters_whose_entries_are_lost_begin_anew(own: redis.Redis) -> None:
    one, two = _filled(own)
    own.delete(KEYS.counters())
    assert (0, 0) == (one.count(), two.count())
    assert all(one.add_many(ITEMS))
    assert (50, 0) == (one.count(), two.count())


def test_members_of_a_lost_bucket_are_counted_anew(own: redis.Redis) -> None:
    """That is not noticed: a bucket may be empty."""
    one, two = _filled(own)
    own.delete(*own.scan_iter("*:ids:*"))
    assert all(one.add_many(ITEMS))
    assert (100, 50) == (one.count(), two.count())


# Members and names.


def test_members_made_to_be_in_one_bucket_are_spread_over_deeper_ones(own: redis.Redis) -> None:
    own.flushall()
    one, items = DistinctCounter(own, "one", "planted"), map("aimed {}".format, count())
    # Those whose buckets begin with the same nine bits.
    members = [*islice((item for item in items if not fingerprint(encode(item)) >> 39 & 511), 500)]
    assert [True] * 500 == one.add_many(members)
    assert [False] * 500 == one.add_many(members)
    assert [*range(500)] == sorted(ids_of(own, "planted").values())  # each given once
    assert 500 == one.count()
    assert {b"listpack", b"ziplist"} >= {
        own.object("encoding", key) for key in own.scan_iter("*:ids:*")
    }
    assert own.strlen(KEYS.layout()) < 16 + 4096


NAMES = [
    *("a", "a:all", "a:all:1", "a:20261120", "a:20261120:1", "a:1", "1", "1:1", ":", "::", "all"),
    *("a@b", "@", "*", "a*", "ä", "\u200b", "日本", "a b", "a\n", "\0", "chunks:a"),
]


def test_counters_with_odd_names_are_apart(own: redis.Redis) -> None:
    own.flushall()
    counters = [DistinctCounter(own, name, "planted") for name in NAMES]
    for number, counter in enumerate(counters):
        assert all(counter.add_many(map(str, range(90 + number))))
    assert [90 + i for i in range(len(NAMES))] == [counter.count() for counter in counters]
    counters[0].clear()
    assert [0, *(90 + i for i in range(1, len(NAMES)))] == [c.count() for c in counters]
