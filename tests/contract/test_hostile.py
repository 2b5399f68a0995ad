"""What another program, or another store, may have written into keys that stores have alike."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TBloomError
from tests.helpers.making import Make
from tests.helpers.stored import snapshot
from tests.helpers.stores import DISTINCT, EXACT, STORES, Store

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


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("value", _LANES, ids=ascii)
def test_a_lane_that_is_none_ends_clearly(
    own: redis.Redis, store: Store, value: str | bytes
) -> None:
    for verb in {"add", "discard"} & {*dir(store.sync)}:
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


@pytest.mark.parametrize("shards", [1, 3])
async def test_stores_of_other_kinds_refuse_each_other(
    make_counter: Make, make: Make, make_exact: Make, client: redis.Redis, name: str, *, shards: int
) -> None:
    makes = partial(make, shards=shards), partial(make_exact, shards=shards), make_counter
    for first, second in permutations(makes, 2):
        seen, other = first(), second()
        await seen.add("a")
        before = snapshot(client, name)
        if second is make_counter:
            verbs = [other.count, other.info, other.clear, partial(other.clear, mapping=True)]
        else:
            verbs = [partial(other.contains, "a")]
            others = [other.reconfigure] if second is makes[0] else []
            for refused in [other.info, other.clear, *others]:
                with pytest.raises((ConfigMismatch, ConfigError), match=r"exact|mapping|kind"):
                    await refused()
        for refused in [partial(other.add, "a"), *verbs]:
            with pytest.raises(ConfigMismatch, match="kind is ") as caught:
                await refused()
            assert "kind" in caught.value.differences
            assert name == caught.value.name
        assert before == snapshot(client, name)
        assert not await seen.add("a")
        await (seen.clear(mapping=True) if first is make_counter else seen.clear())
