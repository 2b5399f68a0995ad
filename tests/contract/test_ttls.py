"""Keys that the server has evicted, or that another program has deleted or restored: each key has a TTL again after the next call
that begins a lane or a part, and what is not lost is remembered. (TTLs when nothing is lost: ``tests/simulation``.)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tests.helpers.contents import keys_of

pytestmark = pytest.mark.usefixtures("away_from_midnight")
ITEMS, NEW, LATER = ([f"{kind} {i}" for i in range(50)] for kind in ("item", "new", "later"))


def _restore(client: redis.Redis, key: str) -> None:
    dumped = client.execute_command("DUMP", key, NEVER_DECODE=True)
    client.restore(key, 0, dumped, replace=True)


HARMS: dict[str, Callable[[redis.Redis, str], Any]] = {
    "evicted": lambda client, key: client.unlink(key),
    "persisted": lambda client, key: client.persist(key),
    "restored": _restore,
}
VERBS: dict[str, Callable[[TimeBloom, list[str]], Any]] = {
    "add_many": lambda seen, items: seen.add_many(items),
    "add": lambda seen, items: [seen.add(item) for item in items],
    "commit_many": lambda seen, items: seen.commit_many(items),
    "import_many": lambda seen, items: seen.import_many(items),
}


def without_ttl(client: redis.Redis, name: str) -> list[str]:
    return [key for key in client.keys(f"*{name}*") if client.pttl(key) < 0]


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
@pytest.mark.parametrize(
    ("harm", "verb"),
    [
        ("evicted", "add_many"),
        *(pytest.param(*each, marks=pytest.mark.check) for each in [*product(HARMS, VERBS)][1:]),
    ],
)
def test_each_key_of_a_filter_has_a_ttl_again(
    url: str, client: redis.Redis, name: str, harm: str, *, verb: str, shards: int
) -> None:
    """redisson#1853; each key in turn, and all of them. They have one once another client adds items."""
    with TimeBloom.from_url(url, name, shards=shards) as seen:
        seen.add_many(ITEMS)
        seen.claim_many(["claimed", *ITEMS])
        left = [f"left {i}" for i in range(10)]
        seen.push_many(left, left)
        keys = keys_of(client, name)
        for turn, some in enumerate([*([key] for key in keys), keys]):
            for key in some:
                HARMS[harm](client, key)
            new = [f"{turn} {item}" for item in NEW]
            VERBS[verb](seen, new)
            seen.claim_many([f"{turn} {item}" for item in LATER])
            with TimeBloom.from_url(url, name, shards=shards) as other:
                other.add_many(f"{turn} {i} of another client" for i in range(30))
            assert [] == without_ttl(client, name)
            assert all(seen.contains_many(new))
        assert seen.push("left at last", "its note")
        seen.clear()
        assert [] == keys_of(client, name)


def test_each_part_of_a_slice_has_a_ttl_again(url: str, client: redis.Redis, name: str) -> None:
    """The name of the eleventh part, which is the newest, comes before that of the tenth."""
    with TimeBloom.from_url(url, name, capacity=1) as seen:
        seen.add_many(f"{i}" for i in range(3000))
        keys = keys_of(client, name)
        assert len(keys) > 2 + 11
        for key in keys:
            client.persist(key)
        with TimeBloom.from_url(url, name, capacity=1) as other:
            other.add("of another client")
        assert [] == without_ttl(client, name)


def test_a_part_that_was_evicted_begins_without_items(
    url: str, client: redis.Redis, name: str
) -> None:
    """They are new again, there is room for them, and no warning is left."""
    with TimeBloom.from_url(url, name, capacity=50, grow=False) as seen:
        seen.add_many(ITEMS)
        client.unlink(seen.keys()[-1])
        assert [True] == ["the server has dropped" in warning for warning in seen.warnings()]
        assert 40 < sum(seen.add_many(ITEMS))
        info = seen.info()
        assert (sum(seen.contains_many(ITEMS)), ()) == (50, info.warnings)
        assert 40 < info.items <= 50


def test_an_older_slice_shortens_no_ttl(clockwork: Any, name: str) -> None:
    """An item that is kept for one slice only says nothing of the other slices' keys."""
    server = clockwork.client
    with TimeBloom.from_url(clockwork.server.url, name, slices=3, capacity=1000) as seen:
        for day in (3, 4, 5):
            clockwork.set(f"2019-06-0{day} 12:00:00")
            seen.add(f"item of {day}")
        for key in keys_of(server, name):
            server.persist(key)
        TimeBloom(server, name, slices=3, capacity=1000).add("short", keep=1)
        slices = [f"{{{name}}}:2019060{day}" for day in (3, 4, 5)]
        assert slices[1:] == sorted(without_ttl(server, name))
        assert server.ttl(slices[0]) <= 12 * 3600
        TimeBloom(server, name, slices=3, capacity=1000).add("long")
        assert [] == without_ttl(server, name)
        clockwork.set("2019-06-07 23:59:50")
        assert "long" in seen


@pytest.mark.parametrize("harm", HARMS)
def test_buckets_live_as_long_as_their_items(clockwork: Any, name: str, harm: str) -> None:
    server, generation = clockwork.client, "*:exact:*"
    with ExactFilter.from_url(clockwork.server.url, name, ttl=5) as seen:
        seen.add("long", ttl=600)
        [bucket] = server.keys(generation)
        HARMS[harm](server, bucket)
        seen.add("short")
        assert (5 if harm == "evicted" else 600) * 1000 <= server.pttl(bucket) <= 602_000
        clockwork.go_on(599)
        assert ("long" in seen) is (harm != "evicted")
        clockwork.go_on(10)
        assert [] == server.keys(generation)


@pytest.mark.parametrize("harm", HARMS)
def test_each_slice_of_a_counter_has_a_ttl_again(
    url: str, client: redis.Redis, name: str, harm: str
) -> None:
    with DistinctCounter.from_url(url, "days", name, granularity="d", slices=3) as days:
        days.add_many(ITEMS)
        [piece] = [
            key for key in keys_of(client, name) if client.pttl(key) > 0 and ":lane:" not in key
        ]
        HARMS[harm](client, piece)
        days.add_many(NEW)
        assert client.pttl(piece) > 0
