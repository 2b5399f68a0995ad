"""Arguments of every wrong kind; and stores in whose places another program may write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis

from tbloom import ConfigError, ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import MappingKeys
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store


def refused(call: Callable[[], object]) -> str | None:
    """The argument that a ConfigError names in a complete message, or None if the call works."""
    try:
        call()
    except ConfigError as error:
        refusal = error
    else:
        return None
    assert str(refusal).startswith(f"{refusal.argument}: expected {refusal.expected}, got ")
    assert len(str(refusal)) < 1000
    return refusal.argument


#: What a filled store holds.
ITEMS = [str(i) for i in range(50)]


def label() -> str:
    """The label of the current slice."""
    return f"{datetime.now(UTC):%Y%m}"


@dataclass(frozen=True)
class Planted:
    """A store by the name "planted", its verbs, and where another program may write."""

    store: Store
    #: A client, by a connection and a number of shards.
    open: Callable[[Any, int], Any]
    verbs: dict[str, Callable[[Any], Any]]
    #: The pattern of the keys of each part.
    parts: dict[str, str]
    #: What is no layout.
    no_layouts: list[str | bytes]

    def __str__(self) -> str:
        return str(self.store)

    def filled(self, own: redis.Redis, shards: int) -> Any:
        own.flushall()
        seen = self.open(own, shards)
        assert all(seen.add_many(ITEMS))
        if self.store is DISTINCT:
            _two(seen).add_many(ITEMS)
        return seen

    def keys(self, own: redis.Redis, part: str) -> list[str]:
        """The keys of a part, of every shard; also one that is not there now."""
        pattern = self.parts[part]
        return [key.decode() for key in own.scan_iter(pattern)] or [pattern]


def _two(one: DistinctCounter) -> DistinctCounter:
    return DistinctCounter(one.client, "two", "planted")


def _filter(own: Any, shards: int, capacity: int = 500) -> TimeBloom:
    return TimeBloom(own, "planted", granularity="m", capacity=capacity, shards=shards)


_ADDS: dict[str, Callable[[Any], Any]] = {
    "add": lambda seen: seen.add("new"),
    "add_many": lambda seen: seen.add_many(["new 1", "new 2", "7"]),
    "contains": lambda seen: seen.contains("7"),
    "contains_many": lambda seen: seen.contains_many(["7", "new"]),
    "info": lambda seen: seen.info(),
    "clear": lambda seen: seen.clear(),
}
_KEYS = MappingKeys("planted")
_OF_COUNTERS: dict[str, Callable[[Any], Any]] = {
    **{verb: call for verb, call in _ADDS.items() if verb != "contains_many"},
    "discard": lambda one: one.discard("7"),
    "merge": lambda one: one.from_roaring(_two(one).members().to_roaring()),
    "in": lambda one: "7" in one.members(),
    "count": lambda one: one.count(),
    "count_and": lambda one: one.count_and(_two(one)),
    "clear_mapping": lambda one: one.clear(mapping=True),
}

PLANTED = {
    BLOOM: Planted(
        BLOOM,
        _filter,
        _ADDS,
        {"config": "*}:config", "state": "*}:state", "slice": "*}:2*"},
        [
            *("garbage", "{}=1:2", "{}=a:b:c", "{}=0:1024:5", "{}=1:1024:65", b"\xff"),
            "{}=5:1024:5;" * 70_000,
        ],
    ),
    EXACT: Planted(
        EXACT,
        lambda own, shards: ExactFilter(own, "planted", shards=shards),
        _ADDS
        | {
            "discard": lambda seen: seen.discard("new"),
            "discard_many": lambda seen: seen.discard_many(["new 1", "new 2"]),
        },
        {"config": "*}:config", "layout": "*}:layout", "bucket": "*}:exact:*"},
        ["garbage that is none", "-000000000000001", b"0" * 16 + b"\xff" * (9 << 20)],
    ),
    DISTINCT: Planted(
        DISTINCT,
        lambda own, _: DistinctCounter(own, "one", "planted"),
        _OF_COUNTERS,
        {
            "config": "*}:config",
            "counters": "*}:counters",
            "piece": _KEYS.piece("one", "all"),
            "layout": "*}:layout",
            "members": "*}:members",
            "bucket": "*}:ids:*",
            "forgotten": _KEYS.forgotten(),
            "forgotten counters": _KEYS.forgotten_counters(),
        },
        ["garbage that is none", b"\xff" * 16],
    ),
}
