"""Keys that another program has planted in a filter's places: each verb gives a right answer, or an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, ExactFilter, TimeBloom

ITEMS = [str(i) for i in range(50)]
VERBS: dict[str, Callable[[Any], Any]] = {
    "add": lambda seen: seen.add("new"),
    "add_many": lambda seen: seen.add_many(["new 1", "new 2", "7"]),
    "contains": lambda seen: seen.contains("7"),
    "contains_many": lambda seen: seen.contains_many(["7", "new"]),
    "info": lambda seen: seen.info(),
    "clear": lambda seen: seen.clear(),
}


class Planted(NamedTuple):
    """A kind of filter; how the names of its keys end; and its verbs."""

    open: Callable[..., Any]
    ends: dict[str, str]
    verbs: dict[str, Callable[[Any], Any]]

    def filled(self, own: redis.Redis, shards: int = 1) -> Any:
        own.flushall()
        seen = self.open(own, shards)
        seen.add_many(ITEMS)
        return seen

    def keys(self, own: redis.Redis, kind: str) -> list[bytes]:
        """The keys of one kind, of every shard."""
        return own.keys(f"*}}:{self.ends[kind]}")


def _bloom(client: redis.Redis, shards: int, capacity: int = 500) -> TimeBloom:
    return TimeBloom(client, "planted", granularity="m", capacity=capacity, shards=shards)


def _exact(client: redis.Redis, shards: int) -> ExactFilter:
    return ExactFilter(client, "planted", shards=shards)


_ENDS = {"config": "config", "layout": "layout"}
BLOOM = Planted(
    _bloom,
    {**_ENDS, "slice": "2*"},
    {
        **VERBS,
        "keys": lambda seen: seen.keys(),
        "reconfigure": lambda seen: _bloom(seen.client, seen.config.shards, 5000).reconfigure(),
    },
)
EXACT = Planted(
    _exact,
    {**_ENDS, "bucket": "exact:*"},
    {
        **VERBS,
        "discard": lambda seen: seen.discard("new"),
        "discard_many": lambda seen: seen.discard_many(["new 1", "new 2"]),
    },
)
each_store = pytest.mark.parametrize("store", [BLOOM, EXACT], ids=["bloom", "exact"])
#: Names of slices come from the calendar alone; and what is in a bucket's place goes with a clear().
_UNTOUCHED = ("layout", "keys"), ("slice", "keys"), ("bucket", "clear")
_WRONG_TYPES = [
    pytest.param(store, kind, verb, id=f"{store.open.__name__[1:]}-{kind}-{verb}")
    for store in (BLOOM, EXACT)
    for kind in store.ends
    for verb in store.verbs
    if (kind, verb) not in _UNTOUCHED
]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("store", "kind", "verb"), _WRONG_TYPES)
def test_a_key_of_another_type_is_named_and_left_alone(
    own: redis.Redis, store: Planted, kind: str, verb: str, shards: int
) -> None:
    store.filled(own, shards)
    keys = store.keys(own, kind)
    for key in keys:
        own.delete(key)
        own.rpush(key, "theirs")
    with pytest.raises(redis.ResponseError, match=r"WRONGTYPE key .* holds a list") as caught:
        store.verbs[verb](store.open(own, shards))
    assert any(repr(key.decode()) in str(caught.value) for key in keys)
    assert [(b"list", -1)] * len(keys) == [(own.type(key), own.ttl(key)) for key in keys]


_CONFIGS = ["not JSON", "", "[]", "null", "7", '"x"', "{}", "[" * 10**5, '{"a":' * 10**5]
_CONFIGS += ['{"kind":"exact"}', "{" * 10**6, "9" * 5000]


@each_store
@pytest.mark.parametrize("value", [*_CONFIGS, b"\xff\xfe"], ids=lambda value: ascii(value)[:12])
def test_a_config_that_is_none_is_refused(
    own: redis.Redis, store: Planted, value: str | bytes
) -> None:
    for shards in (1, 3):
        for call in store.verbs.values():
            store.filled(own, shards)
            for key in store.keys(own, "config"):
                own.set(key, value)
            with pytest.raises((ConfigMismatch, ConfigError)):
                call(store.open(own, shards))


@each_store
@pytest.mark.parametrize("ttl", [None, 10**12])
def test_keys_with_another_ttl_or_none_change_no_answer(
    own: redis.Redis, store: Planted, ttl: int | None
) -> None:
    for verb, call in store.verbs.items():
        seen = store.filled(own)
        for key in own.scan_iter():
            own.pexpire(key, ttl) if ttl else own.persist(key)
        call(seen)
        if verb != "reconfigure":
            assert [verb != "clear"] * len(ITEMS) == seen.contains_many(ITEMS)
