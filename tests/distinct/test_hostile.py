"""What members may be, and what another program may have written into a distinct counter's keys."""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import redis

from tbloom import TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import DEFAULT_MAPPING, MappingKeys
from tbloom.items import encode, fingerprint
from tbloom.window import Window
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


def _contents(own: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: own.dump(key) for key in own.scan_iter() if b":lane:" not in key}


def _ends_clearly(own: redis.Redis, damage: Callable[[], Any]) -> set[str]:
    """Each verb after the damage: its error is tbloom's and changes nothing, and clear(mapping=True) mends it.

    Returns the verbs that had an answer.
    """
    answered = set()
    for verb, call in VERBS.items():
        one, _ = _filled(own)
        damage()
        before = _contents(own)
        try:
            call(one)
            answered.add(verb)
        except TBloomError as error:
            assert re.search("'one'|planted", str(error))  # noqa: PT017 - not each verb raises
            assert verb.startswith("clear") or before == _contents(own)
        one.clear(mapping=True)
        assert all(
            b":ids:" in key for key in _contents(own)
        )  # buckets that a damaged layout does not name
        assert all(one.add_many(ITEMS))
        assert len(ITEMS) == one.count()
    return answered


_HEAD = "1557273600000000 1557273600000000 "
_NO_ENTRIES = ["", "{}", "1557273600000000", "x y {}", _HEAD, _HEAD + '{"name":"x"}', _HEAD + "{}", b"\xff"]  # fmt: skip


@pytest.mark.parametrize("entry", _NO_ENTRIES, ids=lambda entry: ascii(entry)[:60])
def test_an_entry_of_a_counter_that_is_none_is_refused_and_cleared(
    own: redis.Redis, entry: str | bytes
) -> None:
    answered = _ends_clearly(own, lambda: own.hset(KEYS.counters(), "one", entry))
    assert {"clear", "clear_mapping"} == answered
    one, two = _filled(own)
    own.hset(KEYS.counters(), "one", entry)
    one.clear()
    assert [True, 1, 50] == [one.add("7"), one.count(), two.count()]


@pytest.mark.parametrize("name", ["", "a{b", b"\xff", "\ufffd".encode()[:2], "three"], ids=ascii)
@pytest.mark.parametrize("decode", [True, False])
def test_no_field_hinders_a_clear_of_the_mapping(
    own: redis.Redis, name: str | bytes, *, decode: bool
) -> None:
    """A name that is none, or another program's entry."""
    _filled(own)
    own.hset(KEYS.counters(), name, b"\xff")
    port = own.connection_pool.connection_kwargs["port"]
    with DistinctCounter.from_url(
        f"redis://127.0.0.1:{port}/0?decode_responses={decode}", "one", "planted"
    ) as one:
        one.clear(mapping=True)
        assert {} == _contents(own)
        assert one.add("7")


_CONTAINERS = {
    "none": b"",
    "another form": b"xab",
    "sorted ids of before": b":ab",
    "half an id": b"a123",
    "too many ids": b"a" + bytes(8194),
    "a short bitmap": b"b" + bytes(8000),
    "a bitmap without its number": b"b" + bytes(8192),
    "no runs": b"r",
    "another number of runs": b"r" + struct.pack("<5H", 1, 0, 1, 5, 1),
    "too many runs": b"r" + struct.pack("<H", 2048) + bytes(4 * 2048),
}


@pytest.mark.parametrize("container", _CONTAINERS)
def test_a_container_that_is_none_is_refused(own: redis.Redis, container: str) -> None:
    data = _CONTAINERS[container]
    answered = _ends_clearly(own, lambda: own.hset(PIECE, 0, data))
    assert {"count", "info", "clear", "clear_mapping"} == answered


_NO_HEADS = ["", "x", "1 2", "-1 2 1557273600000000", "1.5 2 1557273600000000", "9" * 30 + " 2 3", "1 " + "9" * 30 + " 3", b"\xff"]  # fmt: skip


@pytest.mark.parametrize("head", _NO_HEADS, ids=ascii)
def test_a_head_that_is_none_is_refused(own: redis.Redis, head: str | bytes) -> None:
    answered = _ends_clearly(own, lambda: own.hset(PIECE, "head", head))
    assert {"clear", "clear_mapping"} == answered


@pytest.mark.parametrize("members", ["x", "1.5", "-1", "1e3", "9" * 30, b"\xff"])
def test_a_number_of_members_that_is_none_is_refused(
    own: redis.Redis, members: str | bytes
) -> None:
    answered = _ends_clearly(own, lambda: own.set(KEYS.members(), members))
    assert {"clear", "clear_mapping"} == answered


def test_a_number_of_members_that_is_too_low_is_noticed_by_the_ids(own: redis.Redis) -> None:
    one, _ = _filled(own)
    own.set(KEYS.members(), 49)
    with pytest.raises(TBloomError, match=r"key '\{planted\}:ids:.*' holds what is not"):
        one.add_many(ITEMS)


@pytest.mark.parametrize("id", ["", "x", "1.5", "-1", "nan", "inf", "50", "9" * 30, "7x", b"\xff"])
def test_an_id_that_is_none_is_refused(own: redis.Redis, id: str | bytes) -> None:
    field = fingerprint(encode("7")).to_bytes(16, "big")

    def damage() -> None:
        [bucket] = own.scan_iter("*:ids:*")
        own.hset(bucket, field, id)

    verbs = {*VERBS} - {"add_many", "contains", "discard"}
    if id != "50":  # which tbloom could have written
        verbs -= {"in"}
    assert verbs == _ends_clearly(own, damage)


# What is lost: an error, or what was there is counted anew.


def test_a_lost_layout_or_number_of_members_is_an_error(own: redis.Redis) -> None:
    for key in (KEYS.layout(), KEYS.members()):
        one, two = _filled(own)
        own.delete(key)
        before = _contents(own)
        for counter in (one, two):
            with pytest.raises(TBloomError, match=r"the server has lost .* 'planted'|planted"):
                counter.add("7")
        assert before == _contents(own)
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
    assert {"clear", "clear_mapping"} == _ends_clearly(own, lambda: own.delete(PIECE))


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


def test_members_that_look_alike_are_different_ones(own: redis.Redis) -> None:
    accent = "\N{LATIN SMALL LETTER E WITH ACUTE}"
    members: list[str | bytes] = [
        *("a", "A", " a", "a ", "a\n", "a\0", "\0", b"\xff", b"\xff\xfe", b"\xc3", "0", "00", "-0"),
        *(accent, unicodedata.normalize("NFD", accent), "e", "\u0430", "\u200b", "1", "1.0", "1:2"),
        *("x" * (1 << 20), "x" * (1 << 20) + "y", b"\0" * 16, b"\0" * 17, "{planted}:members"),
    ]
    own.flushall()
    one = DistinctCounter(own, "one", "planted", keep_members=True)
    assert [True] * len(members) == one.add_many(members)
    assert [False] * len(members) == [one.add(member) for member in members]
    assert len(members) == one.count()


def _aimed(bits: int, number: int) -> Iterator[str]:
    """Members whose buckets begin alike."""
    i = 0
    while number:
        if not fingerprint(encode(f"aimed {i}")) >> 48 - bits & (1 << bits) - 1:
            yield f"aimed {i}"
            number -= 1
        i += 1


def test_members_made_to_be_in_one_bucket_are_spread_over_deeper_ones(own: redis.Redis) -> None:
    own.flushall()
    one, members = DistinctCounter(own, "one", "planted"), [*_aimed(9, 500)]
    assert [True] * 500 == one.add_many(members)
    assert [False] * 500 == one.add_many(members)
    _check(own, one, 500)
    assert {b"listpack", b"ziplist"} >= {
        own.object("encoding", key) for key in own.scan_iter("*:ids:*")
    }
    assert own.strlen(KEYS.layout()) < 16 + 4096


def test_members_that_no_bucket_can_part_are_in_one(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if 48 bits of 700 members' hashes were the same: the layout has an end, and answers are right."""
    own.flushall()
    monkeypatch.setattr("tbloom.distinct.members.fingerprint", lambda member: int(member) << 48)
    one, members = DistinctCounter(own, "one", "planted"), [str(i) for i in range(1, 701)]
    assert [True] * 700 == one.add_many(members)
    assert [False] * 700 == one.add_many(members)
    assert all(one.add(str(i)) for i in range(701, 721))
    _check(own, one, 720)
    assert own.strlen(KEYS.layout()) <= 16 + (1 << 23)


def _check(own: redis.Redis, counter: DistinctCounter, members: int) -> None:
    """Each member has an id, given once."""
    assert [*range(members)] == sorted(ids_of(own, "planted").values())
    assert members == counter.count()


NAMES = [
    *("a", "a:all", "a:all:1", "a:20261120", "a:20261120:1", "a:1", "1", "1:1", ":", "::", "all"),
    *("a@b", "@", "*", "a*", "ä", "\u200b", "日本", "a b", "a\n", "\0", "chunks:a"),
]


@pytest.mark.parametrize("mapping", ["planted", DEFAULT_MAPPING])
def test_no_two_of_a_mapping_s_keys_are_the_same(mapping: str) -> None:
    """Whatever the counters' names are; all are in one slot."""
    keys = MappingKeys(mapping)
    labels = ["all", "20261120", "2026112013"]
    window = Window("h", 1000, "Europe/Berlin")
    labels += [slice.label for slice in window.live(1793000000000)]
    assert all(label.isalnum() for label in labels)
    made = [keys.config(), keys.layout(), keys.members(), keys.counters(), keys.forgotten()]
    made += [keys.forgotten_counters(), keys.scratch()]
    made += [keys.lanes() + name for name in ("a:0", "0:0")]
    made += [keys.ids(f"{generation:016}") + str(bucket) for generation in (0, 1) for bucket in (1, 11)]  # fmt: skip
    for name, label, piece in product(NAMES, labels, (0, 1, 15)):
        made.append(keys.piece(name, label, piece))
    assert len(made) == len({*made})
    tag = keys.config().removesuffix("config")
    assert all(key.startswith(tag) for key in made)


def test_counters_with_odd_names_are_apart(own: redis.Redis) -> None:
    own.flushall()
    counters = [DistinctCounter(own, name, "planted") for name in NAMES]
    for number, counter in enumerate(counters):
        assert all(counter.add_many(map(str, range(90 + number))))
    assert [90 + i for i in range(len(NAMES))] == [counter.count() for counter in counters]
    counters[0].clear()
    assert [0, *(90 + i for i in range(1, len(NAMES)))] == [c.count() for c in counters]
