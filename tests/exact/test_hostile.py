"""Keys that somebody else has planted in an exact filter's places: an answer, or an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tbloom import TBloomError
from tbloom.engine.keys import shard_of
from tbloom.engine.tree import Tree
from tbloom.exact import ExactFilter
from tbloom.items import encode, fingerprint

VERBS: dict[str, Callable[[ExactFilter], Any]] = {
    "add": lambda seen: seen.add("new"),
    "add_many": lambda seen: seen.add_many(["new 1", "new 2", "7"]),
    "contains": lambda seen: seen.contains("7"),
    "contains_many": lambda seen: seen.contains_many(["7", "new"]),
    "discard": lambda seen: seen.discard("new"),
    "discard_many": lambda seen: seen.discard_many(["new 1", "new 2"]),
    "info": lambda seen: seen.info(),
    "clear": lambda seen: seen.clear(),
}
ITEMS = [str(i) for i in range(50)]


def _filled(own: redis.Redis, shards: int) -> ExactFilter:
    own.flushall()
    seen = ExactFilter(own, "planted", shards=shards)
    seen.add_many(ITEMS)
    return seen


def _keys(own: redis.Redis, kind: str) -> list[bytes]:
    """The keys of one kind, of every shard."""
    part = {"bucket": "exact:*", "layout": "layout", "config": "config", "lane": "lane:*"}[kind]
    return own.keys(f"*}}:{part}")


def _plant(own: redis.Redis, keys: list[bytes]) -> None:
    for key in keys:
        own.delete(key)
        own.rpush(key, "theirs")


def test_a_swept_bucket_of_another_type_is_left_alone(own: redis.Redis) -> None:
    seen = _filled(own, 1)
    seen.add_many(f"more {i}" for i in range(500))
    tree = Tree("")
    tree.note_splits([1])
    items = [f"other {i}" for i in range(600)]
    ours = [item for item in items if tree.half_of(fingerprint(encode(item))) >> 1 == 2]
    theirs = [key for key in _keys(own, "bucket") if f"{int(key.split(b':')[3]):b}"[:2] == "11"]
    _plant(own, theirs)
    assert ours
    assert theirs
    assert all(seen.add(item) for item in ours)
    assert [b"list"] * len(theirs) == [own.type(key) for key in theirs]


_NO_LAYOUTS = [
    *("x", "garbage that is none", "-000000000000001", "1.00000000000000", "\0" * 16),
    *(b"\xff" * 16, b"0" * 16 + b"\xff" * (9 << 20)),
]


@pytest.mark.parametrize("text", _NO_LAYOUTS, ids=lambda text: ascii(text)[:20])
def test_a_layout_that_is_none_is_refused_by_the_name_of_its_key_and_cleared(
    own: redis.Redis, text: str | bytes
) -> None:
    for shards in (1, 3):
        for verb, call in VERBS.items():
            _filled(own, shards)
            for key in _keys(own, "layout"):
                own.set(key, text)
            seen = ExactFilter(own, "planted", shards=shards)
            if verb != "clear":
                with pytest.raises(TBloomError, match=r":layout' holds .* which is not a layout"):
                    call(seen)
            seen.clear()
            assert all(seen.add_many(ITEMS))


@pytest.mark.parametrize("bits", [b"", b"\xff", b"\x01" * 100, b"\xff" * 5000, b"\x80" * 5000])
def test_a_layout_of_any_bits_ends_clearly(own: redis.Redis, bits: bytes) -> None:
    """No verb fails; and what is added then is held."""
    for call in VERBS.values():
        for shards in (1, 3):
            seen = _filled(own, shards)
            for key in _keys(own, "layout"):
                own.set(key, own.getrange(key, 0, 15) + bits)
            for other in (seen, ExactFilter(own, "planted", shards=shards)):
                call(other)
            seen.add_many(ITEMS)
            assert all(other.contains_many(ITEMS))


@pytest.mark.parametrize("kind", ["config", "layout", "bucket"])
def test_what_the_server_has_dropped_is_new_again(own: redis.Redis, kind: str) -> None:
    """Without its parameters or its buckets; what else there is stays seen, if it can be found."""
    for shards in (1, 3):
        seen = _filled(own, shards)
        own.delete(*_keys(own, kind))
        told = seen.add_many(ITEMS)
        assert told == [kind != "config"] * len(ITEMS)
        assert not any(seen.add_many(ITEMS))
        assert not any(ExactFilter(own, "planted", shards=shards).add_many(ITEMS))
        assert len(ITEMS) == seen.info().items


def test_items_of_one_shard_are_not_looked_for_in_another(own: redis.Redis) -> None:
    seen = _filled(own, 3)
    for shard in range(3):
        bucket = seen.config.keys.buckets("*", shard) + "1"
        [key] = own.keys(bucket)
        held = {int.from_bytes(entry, "big") for entry in own.zrange(key, 0, -1)}
        assert {shard} == {shard_of(entry, 3) for entry in held}
