"""Buckets of an exact filter that another program has planted, or that the server has dropped."""

from __future__ import annotations

import pytest
import redis

from tbloom.engine.keys import shard_of
from tbloom.engine.tree import Tree
from tbloom.exact import ExactFilter
from tbloom.items import encode, fingerprint
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.stores import EXACT

EXACT_FILTER = PLANTED[EXACT]


def test_a_swept_bucket_of_another_type_is_left_alone(own: redis.Redis) -> None:
    seen = EXACT_FILTER.filled(own, 1)
    seen.add_many(f"more {i}" for i in range(500))
    tree = Tree("")
    tree.note_splits([1])
    items = [f"other {i}" for i in range(600)]
    ours = [item for item in items if tree.half_of(fingerprint(encode(item))) >> 1 == 2]
    theirs = [
        key for key in EXACT_FILTER.keys(own, "bucket") if f"{int(key.split(':')[3]):b}"[:2] == "11"
    ]
    own.delete(*theirs)
    for key in theirs:
        own.rpush(key, "theirs")
    assert ours
    assert theirs
    assert all(seen.add(item) for item in ours)
    assert [b"list"] * len(theirs) == [own.type(key) for key in theirs]


@pytest.mark.parametrize("kind", ["config", "layout", "bucket"])
def test_what_the_server_has_dropped_is_new_again(own: redis.Redis, kind: str) -> None:
    """Without its parameters or its buckets; what else there is stays seen, if it can be found."""
    for shards in (1, 3):
        seen = EXACT_FILTER.filled(own, shards)
        own.delete(*EXACT_FILTER.keys(own, kind))
        told = seen.add_many(ITEMS)
        assert told == [kind != "config"] * len(ITEMS)
        assert not any(seen.add_many(ITEMS))
        assert not any(ExactFilter(own, "planted", shards=shards).add_many(ITEMS))
        assert len(ITEMS) == seen.info().items


def test_items_of_one_shard_are_not_looked_for_in_another(own: redis.Redis) -> None:
    seen = EXACT_FILTER.filled(own, 3)
    for shard in range(3):
        bucket = seen.config.keys.buckets("*", shard) + "1"
        [key] = own.keys(bucket)
        held = {int.from_bytes(entry, "big") for entry in own.zrange(key, 0, -1)}
        assert {shard} == {shard_of(entry, 3) for entry in held}
