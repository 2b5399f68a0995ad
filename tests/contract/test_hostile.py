"""What another program may have written into keys that the exact stores have alike."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import TBloomError
from tests.helpers.stores import DISTINCT, EXACT, Store

pytestmark = pytest.mark.usefixtures("away_from_midnight")
ITEMS = [str(i) for i in range(50)]
_LANES = ["garbage", "", "1", ":", "x:1", "9" * 30 + ":1", "2:", "2:9", "2:9:1", "2:xx:1", b"\xff"]


def _filled(own: redis.Redis, store: Store) -> Any:
    own.flushall()
    port = own.connection_pool.connection_kwargs["port"]
    seen = store.open(f"redis://127.0.0.1:{port}/0", "planted")
    seen.add_many(ITEMS)
    return seen


@pytest.mark.parametrize("store", [EXACT, DISTINCT], ids=str)
def test_a_lane_of_another_type_is_named(own: redis.Redis, store: Store) -> None:
    """Lanes have random names; the next call goes by another one."""
    with _filled(own, store) as seen:
        for key in own.scan_iter("*:lane:*"):
            own.delete(key)
            own.rpush(key, "theirs")
        with pytest.raises(redis.ResponseError, match=r"WRONGTYPE key '.*:lane:.*' holds a list"):
            seen.add("new")
        assert seen.add("new")
        assert 51 == store.held(seen)


@pytest.mark.parametrize("store", [EXACT, DISTINCT], ids=str)
@pytest.mark.parametrize("value", _LANES, ids=ascii)
def test_a_lane_that_is_none_ends_clearly(
    own: redis.Redis, store: Store, value: str | bytes
) -> None:
    for verb in ("add", "discard"):
        with _filled(own, store) as seen:
            for key in own.scan_iter("*:lane:*"):
                own.set(key, value)
            try:
                getattr(seen, verb)("7")
            except TBloomError:
                assert seen.add("another") is True
            assert all(seen.contains_many(set(ITEMS) - {"7"}))


@pytest.mark.parametrize(
    ("store", "buckets"), [(EXACT, "*:exact:*"), (DISTINCT, "*:ids:*")], ids=str
)
def test_a_bucket_whose_half_is_of_another_type_holds_more(
    own: redis.Redis, store: Store, buckets: str
) -> None:
    """It is split once the half is free."""
    with _filled(own, store) as seen:
        [bucket] = own.scan_iter(buckets)
        half = bucket[:-1] + b"3"
        own.rpush(half, "theirs")
        items = [f"more {i}" for i in range(500)]
        assert all(seen.add_many(items))
        assert not any(seen.add_many(items))
        own.delete(half)
        assert seen.add("another")
        assert not any(seen.add_many([*items, *ITEMS, "another"]))
        assert 551 == store.held(seen)
        assert not own.exists(bucket)
