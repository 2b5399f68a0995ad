"""What members may be, and what somebody else may have planted in a distinct counter's places."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import Keys, kind_of
from tbloom.items import encode, fingerprint
from tbloom.window import Window

pytestmark = pytest.mark.usefixtures("away_from_midnight")
FEW, MANY = [str(i) for i in range(50)], [str(i) for i in range(5000)]
VERBS: dict[str, Callable[[DistinctCounter, DistinctCounter], Any]] = {
    "add": lambda one, _: one.add("new"),
    "add_many": lambda one, _: one.add_many(["new 1", "new 2", "7"]),
    "count": lambda one, _: one.count(),
    "count_and": lambda one, other: one.count_and(other),
    "count_or": lambda one, other: one.count_or(other),
    "count_xor": lambda one, other: one.count_xor(other),
    "info": lambda one, _: one.info(),
    "clear": lambda one, _: one.clear(),
    "clear_mapping": lambda one, _: one.clear(mapping=True),
}
PARTS = {
    "config": "config",
    "layout": "layout",
    "members": "members",
    "counters": "counters",
    "forgotten": "forgotten",
    "bucket": "ids:*",
    "directory": "chunks:*",
    "bitmap": "bitmap:*",
    "scratch": "scratch:*",
}
_COUNTS = {"count_and", "count_or", "count_xor"}
#: The verbs that look into such a key.
READ = {
    "config": VERBS.keys(),
    "counters": VERBS.keys(),
    "directory": VERBS.keys(),
    "layout": VERBS.keys() - {"clear"},
    "members": {"add", "add_many", "info", "clear_mapping"},
    "forgotten": {"clear_mapping"},
    "bucket": {"add", "add_many"},
    "bitmap": {"add", "add_many", *_COUNTS},
    "scratch": _COUNTS,
}


_copies: list[tuple[bytes, Any]] = []


def _filled(own: redis.Redis, members: list[str]) -> tuple[DistinctCounter, DistinctCounter]:
    """Two counters of one mapping with these members, and clients that have met them. (Many are made once, and copied.)"""
    own.flushall()
    counters = _again(own)
    if members is not MANY or not _copies:
        for counter in counters:
            assert all(counter.add_many(members))
        if members is MANY:
            _copies.extend((key, own.dump(key)) for key in own.scan_iter() if b":lane:" not in key)
        return counters
    with own.pipeline() as pipeline:
        for key, value in _copies:
            pipeline.restore(key, 0, value)
        pipeline.execute()
    for counter in counters:
        assert not any(counter.add_many(members[:300]))
    return counters


def _again(own: redis.Redis) -> tuple[DistinctCounter, DistinctCounter]:
    """The same by clients that know nothing yet."""
    return DistinctCounter(own, "one", "planted"), DistinctCounter(own, "two", "planted")


def _keys(own: redis.Redis, part: str) -> list[bytes]:
    return sorted(own.scan_iter(f"*}}:{PARTS.get(part, part)}"))


def _contents(own: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: own.dump(key) for key in own.scan_iter() if b":lane:" not in key}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_key_of_another_type_is_named_and_left_alone(
    own: redis.Redis, part: str, verb: str
) -> None:
    """What removes or reads no such key minds none; a bitmap's name is the counter's own, so clear() removes it."""
    for counters in (_filled(own, MANY), _again(own)):
        keys = (
            _keys(own, part)
            or [
                Keys("planted").forgotten().encode(),
                *(Keys("planted").scratch(i).encode() for i in range(3)),
            ][slice(0, 1) if part == "forgotten" else slice(1, None)]
        )
        for key in keys:
            own.delete(key)
            own.rpush(key, "theirs")
        before = _contents(own)
        if verb not in READ[part]:
            VERBS[verb](*counters)
            if not verb.startswith("clear"):
                assert {key: own.dump(key) for key in keys} == {key: before[key] for key in keys}
            continue
        with pytest.raises(redis.ResponseError, match=r"WRONGTYPE key .* holds a list") as caught:
            VERBS[verb](*counters)
        assert any(repr(key.decode()) in str(caught.value) for key in keys)
        if verb != "clear_mapping":  # it is several calls
            assert before == _contents(own)
        assert {key: own.dump(key) for key in keys} == {key: before[key] for key in keys}


def test_a_lane_of_another_type_is_named(own: redis.Redis) -> None:
    """Lanes have random names; the next call goes by another one."""
    one, _ = _filled(own, FEW)
    for key in own.scan_iter("*:lane:*"):
        own.delete(key)
        own.rpush(key, "theirs")
    with pytest.raises(redis.ResponseError, match=r"WRONGTYPE key '.*:lane:.*' holds a list"):
        one.add("new")
    assert one.add("new")
    assert 51 == one.count()


def test_a_bitmap_s_place_that_is_taken_is_named_before_the_bitmap_is_made(
    own: redis.Redis,
) -> None:
    one, _ = _filled(own, MANY[:4000])
    key = Keys("planted").bitmap("one", "all", 0)
    own.rpush(key, "theirs")
    before = _contents(own)
    with pytest.raises(redis.ResponseError, match=rf"WRONGTYPE key '{key}' holds a list"):
        one.add_many(MANY[4000:4150])
    assert before == _contents(own)
    own.delete(key)
    assert 5000 == one.count() + sum(one.add_many(MANY))


def test_a_bucket_whose_half_is_somebody_else_s_holds_more(own: redis.Redis) -> None:
    """It can't be split, and is no worse for that; it is once the half is free."""
    one, _ = _filled(own, FEW)
    [bucket] = _keys(own, "bucket")
    half = bucket[:-1] + b"3"
    own.rpush(half, "theirs")
    members = [f"more {i}" for i in range(500)]
    assert all(one.add_many(members))
    assert not any(one.add_many(members))
    assert [bucket, half] == _keys(own, "bucket")
    own.delete(half)
    assert one.add("another")
    assert not any(one.add_many([*members, *FEW, "another"]))
    assert (551, 551) == (one.count(), one.info().members)
    assert bucket not in _keys(own, "bucket")


_NO_JSON = ["not JSON", "", "[]", "null", "7", '{"kind":"exact"}', "9" * 5000, b"\xff", "[" * 9999]


_NO_PARAMETERS = [
    *('{"name":"x"}', '{"granularity":["d"],"slices":2,"tz":"UTC"}', '{"granularity":"d"}'),
    *('{"granularity":"d","slices":1e400,"tz":"UTC"}', '{"granularity":"d","slices":2,"tz":7}'),
]


@pytest.mark.parametrize(
    ("of", "text"),
    [*product(["planted"], [*_NO_JSON, "{}"]), *product(["one"], [*_NO_JSON, *_NO_PARAMETERS])],
    ids=lambda text: ascii(text)[:40],
)
@pytest.mark.parametrize("verb", VERBS)
def test_parameters_that_are_none_are_refused(
    own: redis.Redis, verb: str, of: str, text: str | bytes
) -> None:
    """A mapping's, or a counter's."""
    _filled(own, FEW)
    if of == "planted":
        own.set(Keys("planted").config(), text)
        expected, message = ConfigMismatch, "'planted' is stored with other parameters"
    else:
        own.hset(Keys("planted").counters(), "one", text)
        expected, message = (ConfigError if verb.startswith("clear") else ConfigMismatch), "'one'"
    before = _contents(own)
    with pytest.raises(expected, match=message):
        VERBS[verb](*_again(own))
    assert before == _contents(own)


@pytest.mark.parametrize("text", [*_NO_JSON, *_NO_PARAMETERS], ids=lambda text: ascii(text)[:40])
def test_what_hinders_a_clear_of_the_mapping_is_named(own: redis.Redis, text: str | bytes) -> None:
    """Parameters of another counter that are none: the key they are in, and the counter."""
    key = Keys("planted").counters()
    one, _ = _filled(own, FEW)
    own.hset(key, "two", text)
    before = _contents(own)
    with pytest.raises(ConfigError) as caught:
        one.clear(mapping=True)
    assert "'two'" in str(caught.value)
    assert key in str(caught.value)
    assert before == _contents(own)


@pytest.mark.parametrize("name", ["", "a{b", b"\xff", "\ufffd".encode()[:2]], ids=ascii)
def test_a_counter_whose_name_is_none_hinders_a_clear_of_the_mapping_and_is_named(
    own: redis.Redis, name: str | bytes
) -> None:
    """It can't be cleared by such a name; it is no endless loop."""
    key = Keys("planted").counters()
    one, _ = _filled(own, FEW)
    own.hset(key, name, one.config.stored)
    before = _contents(own)
    with pytest.raises(ConfigError, match=re.escape(f"{name!r} in {key!r}: ")):
        one.clear(mapping=True)
    assert before == _contents(own)
    own.hdel(key, name)
    one.clear(mapping=True)
    assert {} == _contents(own)


def test_the_counter_that_is_stored_with_other_parameters_is_named(own: redis.Redis) -> None:
    one, two = _filled(own, FEW)
    other = DistinctCounter(own, "two", "planted", granularity="d", slices=2)
    for counters in ((one, other), (other, one), (one, two, other), (other, two, one)):
        with pytest.raises(ConfigMismatch, match=r"'two'.*granularity is None there and 'd' here"):
            counters[0].count_or(*counters[1:])


@pytest.mark.parametrize("text", ["x", "garbage that is none", "-000000000000001", "\0" * 16, b"\xff" * 16, b"0" * 16 + b"\xff" * (9 << 20)], ids=lambda text: ascii(text)[:20])  # fmt: skip
@pytest.mark.parametrize("verb", VERBS)
def test_a_layout_that_is_none_is_refused_and_cleared(
    own: redis.Redis, verb: str, text: str | bytes
) -> None:
    _filled(own, FEW)
    own.set(Keys("planted").layout(), text)
    one, two = _again(own)
    if verb.startswith("add"):
        with pytest.raises(TBloomError, match=r":layout' holds .* which is not a layout"):
            VERBS[verb](one, two)
    elif not verb.startswith("clear") and text != b"0" * 16 + b"\xff" * (9 << 20):
        with pytest.raises(TBloomError, match="has lost the ids of the mapping 'planted'"):
            VERBS[verb](one, two)
    own.set(Keys("planted").forgotten(), text)
    one.clear(mapping=True)
    assert not own.exists(Keys("planted").layout(), Keys("planted").forgotten())
    assert all(one.add_many(FEW))
    assert len(FEW) == one.count()


def _ends_clearly(own: redis.Redis, damage: Callable[[], Any], members: list[str]) -> list[str]:
    """Each verb after the damage: the error is ours and changes nothing, and the mapping can be cleared.

    Returns the verbs that had an answer.
    """
    answered = []
    for verb, call in VERBS.items():
        counters = _filled(own, members)
        damage()
        before = _contents(own)
        try:
            call(*counters)
            answered.append(verb)
        except TBloomError as error:
            assert re.search("'one'|planted", str(error))  # noqa: PT017 - not each verb raises
            assert verb.startswith("clear") or before == _contents(own)
        counters[0].clear(mapping=True)
        assert all(counters[0].add_many(FEW))
        assert len(FEW) == counters[0].count()
    return answered


@pytest.mark.parametrize("entry", ["", "x", ":x", ":" + "x" * 9000, "4096", "70000", "5e3", "-5000", "nan", "9" * 400, b"\xff"], ids=lambda entry: ascii(entry)[:12])  # fmt: skip
@pytest.mark.parametrize("members", [FEW, MANY], ids=["sorted", "bitmap"])
def test_a_directory_s_entry_that_is_none_is_refused_where_it_is_read(
    own: redis.Redis, entry: str | bytes, members: list[str]
) -> None:
    key = Keys("planted").directory("one", "all")
    answered = _ends_clearly(own, lambda: own.hset(key, "0", entry), members)
    assert ["count", "info", "clear", "clear_mapping"] == answered


@pytest.mark.parametrize("field", ["", "x", "inf", "nan", "0.5", "-1", "65536", "9" * 30, "1e3"])
@pytest.mark.parametrize("entry", ["x", ":ab", "5000"])
def test_a_directory_s_field_that_is_none_ends_clearly(
    own: redis.Redis, field: str, entry: str
) -> None:
    key = Keys("planted").directory("one", "all")
    answered = _ends_clearly(own, lambda: own.hset(key, field, entry), FEW)
    assert {"add", "add_many", "count", "info", "clear", "clear_mapping"} <= {*answered}


@pytest.mark.parametrize("n", ["", "x", "1.5", "-1", "nan", "9" * 30])
def test_a_directory_s_sum_that_is_none_is_refused(own: redis.Redis, n: str) -> None:
    key = Keys("planted").directory("one", "all")
    answered = _ends_clearly(own, lambda: own.hset(key, "n", n), FEW)
    assert ["clear", "clear_mapping"] == answered


@pytest.mark.parametrize("parameters", [{}, {"granularity": "d", "slices": 2}], ids=["whole", "sliced"])  # fmt: skip
def test_a_hash_that_is_no_directory_is_named_by_a_new_counter(
    own: redis.Redis, parameters: dict[str, Any]
) -> None:
    """It has the place of one, and ``n``; no id is given until it is gone."""
    one, _ = _filled(own, FEW)
    three = DistinctCounter(own, "three", "planted", **parameters)
    label = three.info().slices[-1].label
    key = f"{{planted}}:chunks:three:{label}"
    own.hset(key, "n", "abc")
    before = _contents(own)
    for verb in ("add", "add_many", "count", "count_and", "count_or"):
        with pytest.raises(TBloomError, match=f"'three': key '{key}' holds what is not tbloom's"):
            VERBS[verb](three, one)
    assert before == _contents(own)
    own.delete(key)
    assert all(three.add_many(["new", *FEW]))
    _check(own, three, len(FEW) + 1)


@pytest.mark.parametrize("members", ["", "x", "1.5", "-1", "nan", "1e3", "9" * 30, b"\xff", "49"])
def test_a_number_of_members_that_is_none_is_refused(own: redis.Redis, members: str) -> None:
    """Also one that is too low: the next ids would be given twice."""
    key = Keys("planted").members()
    answered = _ends_clearly(own, lambda: own.set(key, members), FEW)
    refused = {"add_many", "add", "info"} & VERBS.keys() - {*answered}
    if members != "49":
        assert refused == {"add", "add_many", "info"}
    else:
        one, _ = _filled(own, FEW)
        own.set(key, members)
        with pytest.raises(TBloomError, match=r"key '\{planted\}:ids:.*' holds what is not"):
            one.add_many(FEW)


@pytest.mark.parametrize("id", ["", "x", "1.5", "-1", "nan", "inf", "1e30", "50", b"\xff"])
def test_an_id_that_is_none_is_refused(own: redis.Redis, id: str) -> None:
    key = fingerprint(encode("7")).to_bytes(16, "big")
    answered = _ends_clearly(own, lambda: own.hset(_keys(own, "bucket")[0], key, id), FEW)
    assert VERBS.keys() - {"add_many"} == {*answered}


@pytest.mark.parametrize("value", ["garbage", "", "1", ":", "x:1", "9" * 30 + ":1", "2:", "2:9", "2:xx", "-1:1", b"\xff", "2:11111"], ids=ascii)  # fmt: skip
def test_a_lane_that_is_none_ends_clearly(own: redis.Redis, value: str | bytes) -> None:
    for verb in ("add", "add_many", "clear", "clear_mapping"):
        one, two = _filled(own, FEW)
        for key in own.scan_iter("*:lane:*"):
            own.set(key, value)
        try:
            VERBS[verb](one, two)
        except TBloomError:
            assert one.add("another") is True
        assert len(FEW) == two.count() or verb == "clear_mapping"


@pytest.mark.parametrize("bits", [b"", b"\xff", b"\x01" * 100, b"\xff" * 5000, b"\x80" * 5000])
def test_a_layout_of_any_bits_ends_clearly(own: redis.Redis, bits: bytes) -> None:
    """Ids that are not found are given anew, so members are counted twice: the bits can't be told from others."""
    layout = Keys("planted").layout()

    def damage() -> None:
        own.set(layout, own.getrange(layout, 0, 15) + bits)

    assert [*VERBS] == _ends_clearly(own, damage, FEW)


# What is lost: an error, or what was there is counted anew.


def test_a_lost_layout_or_number_of_members_is_an_error(own: redis.Redis) -> None:
    for part in ("layout", "members"):
        one, _ = _filled(own, FEW)
        own.delete(*_keys(own, part))
        before = _contents(own)
        for counter in (one, _again(own)[0]):
            with pytest.raises(TBloomError, match=r"'one': .*the server has lost .* 'planted'"):
                counter.add("7")
        assert before == _contents(own)
        one.clear(mapping=True)
        assert all(one.add_many(FEW))


def test_all_of_a_mapping_lost_but_a_counter_is_an_error_that_names_it(own: redis.Redis) -> None:
    one, two = _filled(own, FEW)
    own.delete(*(_keys(own, "layout") + _keys(own, "members") + _keys(own, "bucket")))
    two.clear()
    assert all(two.add_many(FEW))
    for verb in ("add", "count", "count_and", "info"):
        with pytest.raises(TBloomError, match="'one': the server has lost the ids"):
            VERBS[verb](one, two)
    with pytest.raises(TBloomError, match="'one': the server has lost the ids"):
        two.count_or(one)
    assert len(FEW) == two.count()
    one.clear()
    assert [True, False] == [one.add("7"), one.add("7")]
    assert 1 == one.count_and(two)


@pytest.mark.parametrize("members", [FEW, MANY], ids=["sorted", "bitmap"])
def test_a_lost_directory_is_an_error(own: redis.Redis, members: list[str]) -> None:
    key = Keys("planted").directory("one", "all")
    answered = _ends_clearly(own, lambda: own.delete(key), members)
    assert ["clear", "clear_mapping"] == answered
    one, _ = _filled(own, members)
    own.delete(key)
    bitmaps = _keys(own, "bitmap")
    with pytest.raises(TBloomError, match=f"key '{key}' holds what is not tbloom's, or the server"):
        one.count()
    one.clear()
    assert 0 == one.count()
    assert bitmaps == _keys(own, "bitmap")  # what named them is lost
    assert all(one.add_many(members))
    assert len(members) == one.count()


def test_a_lost_bitmap_is_an_error(own: redis.Redis) -> None:
    key = Keys("planted").bitmap("one", "all", 0)
    answered = _ends_clearly(own, lambda: own.delete(key), MANY)
    assert ["count", "info", "clear", "clear_mapping"] == answered


def test_a_lost_slice_is_forgotten_and_the_others_are_counted(own: redis.Redis) -> None:
    own.flushall()
    one = DistinctCounter(own, "one", "planted", granularity="d", slices=2)
    one.add_many(FEW)
    own.delete(*_keys(own, "directory"))
    assert 0 == one.count()
    assert all(one.add_many(FEW))


def test_lost_parameters_are_stored_anew(own: redis.Redis) -> None:
    for part in ("config", "counters"):
        one, two = _filled(own, FEW)
        [key] = _keys(own, part)
        before = own.dump(key) if part == "config" else own.hget(key, "one")
        own.delete(key)
        assert [False, True] == [one.add("7"), one.add("new")]
        assert before == (own.dump(key) if part == "config" else own.hget(key, "one"))
        assert (51, 50) == (one.count(), two.count())


def test_members_of_a_lost_bucket_are_counted_anew(own: redis.Redis) -> None:
    """That is not noticed: a bucket may be empty."""
    one, two = _filled(own, FEW)
    own.delete(*_keys(own, "bucket"))
    assert all(one.add_many(FEW))
    assert (100, 50) == (one.count(), two.count())


# Members and names.


def test_members_that_look_alike_are_different_ones(own: redis.Redis) -> None:
    own.flushall()
    one = DistinctCounter(own, "one", "planted")
    accent = "\N{LATIN SMALL LETTER E WITH ACUTE}"
    members: list[str | bytes] = [
        *("a", "A", " a", "a ", "a\n", "a\0", "\0", b"\xff", b"\xff\xfe", b"\xc3", "0", "00", "-0"),
        *(accent, unicodedata.normalize("NFD", accent), "e", "\u0430", "\u200b", "1", "1.0"),
        *("x" * (1 << 20), "x" * (1 << 20) + "y", b"\0" * 16, b"\0" * 17, "{planted}:members"),
    ]
    assert [True] * len(members) == one.add_many(members)
    assert [False] * len(members) == [one.add(member) for member in members]
    assert not one.add(b"a")
    assert not one.add(accent.encode())
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
        own.object("encoding", key) for key in _keys(own, "bucket")
    }
    assert own.strlen(Keys("planted").layout()) < 16 + 4096


def test_members_that_no_bucket_can_part_are_in_one(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if 48 bits of 700 members' hashes were the same: the layout has an end, and answers are right."""
    own.flushall()
    monkeypatch.setattr("tbloom.distinct.protocol.fingerprint", lambda member: int(member) << 48)
    one, members = DistinctCounter(own, "one", "planted"), [str(i) for i in range(1, 701)]
    assert [True] * 700 == one.add_many(members)
    assert [False] * 700 == one.add_many(members)
    assert all(one.add(str(i)) for i in range(701, 721))
    _check(own, one, 720)
    assert own.strlen(Keys("planted").layout()) <= 16 + (1 << 23)


def _check(own: redis.Redis, counter: DistinctCounter, members: int) -> None:
    """Each member has an id, given once."""
    ids = [int(id) for key in _keys(own, "bucket") for id in own.hvals(key)]
    assert [*range(members)] == sorted(ids)
    assert members == counter.count()


NAMES = [
    *("a", "a:all", "a:all:0", "a:20261120", "a:20261120:0", "a:0", "0", "0:0", ":", "::", "all"),
    *("a@b", "@", "*", "a*", "ä", "\u200b", "日本", "a b", "a\n", "\0", "chunks:a", "bitmap:a"),
]


def test_no_two_of_a_mapping_s_keys_are_the_same() -> None:
    """Whatever the counters' names are; all are in one slot, and of the types that errors go by."""
    keys, labels = Keys("planted"), ["all", "20261120", "2026112013", "0"]
    window = Window("h", 1000, "Europe/Berlin")
    labels += [slice.label for slice in window.live(1793000000000)]
    assert all(label.isalnum() for label in labels)
    made = [keys.config(), keys.layout(), keys.members(), keys.counters(), keys.forgotten()]
    made += [keys.lanes() + name for name in ("a:0", "0:0")]
    made += [keys.scratch(number) for number in range(3)]
    made += [
        keys.ids(f"{generation:016}") + f"{bucket}" for generation in (0, 1) for bucket in (1, 11)
    ]
    for name, label in product(NAMES, labels):
        made.append(keys.directory(name, label))
        assert "hash" == kind_of(made[-1])
        for chunk in (0, 1, 10):
            made.append(keys.bitmap(name, label, chunk))
            assert "string" == kind_of(made[-1])
    assert len(made) == len({*made})
    assert {"{planted}"} == {key[: len("{planted}")] for key in made}


def test_counters_with_odd_names_are_apart(own: redis.Redis) -> None:
    own.flushall()
    counters = [DistinctCounter(own, name, "planted") for name in NAMES]
    for number, counter in enumerate(counters):
        assert all(counter.add_many(MANY[: 4090 + number]))
    assert [4090 + i for i in range(len(NAMES))] == [counter.count() for counter in counters]
    for (one, a), (other, b) in combinations(list(enumerate(counters))[::6], 2):
        assert 4090 + min(one, other) == a.count_and(b)
    counters[0].clear()
    assert [0, *(4090 + i for i in range(1, len(NAMES)))] == [c.count() for c in counters]


@pytest.mark.parametrize("others", [1001, 9000])
def test_thousands_of_bitmaps_are_combined(own: redis.Redis, others: int) -> None:
    """More than Lua passes to a command."""
    one, two = _filled(own, MANY)
    two.add_many(f"other {i}" for i in range(1000))
    many = [two] * others
    counts = one.count_or(*many), one.count_and(*many), one.count_xor(*many)
    assert counts == (6000, 5000, 5000 if others % 2 == 0 else 1000)
    assert [] == [*own.scan_iter("*scratch*")]
