"""Keys that another program has planted in a store's places: each verb answers, or an error says why. And an argument that can't
be right is named, with what would be right, and nothing has changed. (Windows: test_window.py. Items: test_stores.py.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import permutations, product
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import (
    AsyncTimeBloom,
    ConfigError,
    ConfigMismatch,
    ExactFilter,
    Note,
    TBloomError,
    TimeBloom,
)
from tbloom.distinct import DistinctCounter
from tests.helpers.contents import snapshot
from tests.helpers.hostile import ITEMS, PLANTED, Planted, label, refused
from tests.helpers.making import Make
from tests.helpers.stores import BLOOM, EXACT, Store

pytestmark = pytest.mark.usefixtures("away_from_midnight")
#: These change one key after the other.
_IN_STEPS = {"clear", "clear_mapping"}
each_number_of_shards = pytest.mark.parametrize(
    "shards", [pytest.param(1, marks=pytest.mark.check), 3]
)
_NO_CONFIGS: list[str | bytes] = [
    *("not JSON", "", "[]", "null", "7", '"x"', "{}", '{"kind":"exact"}', "9" * 5000, b"\xff\xfe"),
    *("[" * 10**5, '{"a":' * 10**5, "{" * 10**6),
]
#: A store, a part of it, and what another program has written there; None: a list.
_WRITTEN = [
    pytest.param(planted, part, value, marks=pytest.mark.check if number > 1 else ())
    for planted in PLANTED.values()
    for part in planted.parts
    for number, value in enumerate(
        [
            None,
            *(_NO_CONFIGS if part == "config" else ()),
            *(planted.no_layouts if part in ("state", "layout") else ()),
        ]
    )
]


def _id(value: Any) -> str:
    """Short, though some values are very long."""
    return ascii(value[:20] if isinstance(value, str | bytes) else value and str(value))[:20]


def _write(own: redis.Redis, key: str, value: str | bytes | None) -> None:
    if value is not None and key.endswith(":state"):
        own.hset(key, "layout", value)
    elif value is not None:
        own.set(key, value)
    else:
        own.delete(key)
        own.rpush(key, "theirs")


@pytest.mark.parametrize(("planted", "part", "value"), _WRITTEN, ids=_id)
@each_number_of_shards
def test_keys_of_another_program_are_named_and_left_alone(
    own: redis.Redis, planted: Planted, part: str, value: str | bytes | None, shards: int
) -> None:
    """A verb that does not read such a key answers."""
    if isinstance(value, str):
        value = value.replace("{}=", f"{label()}=")
    refused = set()
    for verb, call in planted.verbs.items():
        planted.filled(own, shards)
        keys = planted.keys(own, part)
        for key in keys:
            _write(own, key, value)
        seen, before, error = planted.open(own, shards), snapshot(own, lanes=False), ""
        try:
            call(seen)
        except (redis.ResponseError, TBloomError) as raised:
            error = str(raised)
        if error:
            assert "planted" in error
            assert len(keys) == own.exists(*keys)
            assert verb in _IN_STEPS or before == snapshot(own, lanes=False)
            refused.add(verb)
    assert ("clear_mapping" if part.startswith("forgotten") else "add") in refused


@each_number_of_shards
async def test_stores_of_other_kinds_refuse_each_other(
    make_counter: Make, make: Make, make_exact: Make, client: redis.Redis, name: str, *, shards: int
) -> None:
    makes = partial(make, shards=shards), partial(make_exact, shards=shards), make_counter
    for first, second in permutations(makes, 2):
        seen, other = first(), second()
        await seen.add("a")
        before = snapshot(client, name)
        is_counter = second is make_counter
        looks = [other.count, other.info] if is_counter else [partial(other.contains, "a")]
        for verb in partial(other.add, "a"), *looks, other.clear:
            with pytest.raises((ConfigMismatch, ConfigError), match=r"kind|exact|mapping"):
                await verb()
        assert before == snapshot(client, name)
        assert not await seen.add("a")
        await (seen.clear(mapping=True) if first is make_counter else seen.clear())


@pytest.mark.parametrize(
    ("store", "later", "verbs"),
    [
        (BLOOM, {"capacity": 2000}, ("add", "contains", "claim", "commit")),
        (BLOOM, {"shards": 3}, ("add", "contains", "claim", "last_seen")),
        (EXACT, {"shards": 3}, ("add", "contains", "discard")),
    ],
    ids=str,
    indirect=["store"],
)
async def test_a_shard_without_parameters_asks_for_them(
    store: Store, driver: str, url: str, name: str, *, later: dict[str, int], verbs: list[str]
) -> None:
    """The filter was cleared and made anew, by an add to another of its shards."""
    old, new = (
        store.awaited(url, name, driver=driver, **{"shards": 2, **own}) for own in ({}, later)
    )
    await old.add_many(ITEMS)
    await new.clear()
    await new.add(ITEMS[0])
    for item, verb in product(ITEMS, verbs):
        with pytest.raises(ConfigMismatch, match=r"(capacity is 2000|shards is 3) there and"):
            await getattr(old, verb)(item)


_NO_TTLS = (
    *(0, -1, 0.0004, math.nan, math.inf, -math.inf, True, "60", b"60", 10**10, 10**400),
    *(timedelta(0), timedelta(days=-1), timedelta(days=40_000), [60]),
)
#: A class, an argument of it, and values that it can't have; a fourth thing is what else is given.
CLASSES: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = [
    (TimeBloom, "client", (redis.asyncio.Redis(), object(), "redis://localhost"), {}),
    # Which would answer each command with itself, and can be unpacked for ever (redisson#2753).
    *((kind, "client", (redis.Redis().pipeline(),), {}) for kind in (TimeBloom, DistinctCounter)),
    (AsyncTimeBloom, "client", (redis.Redis(), redis.asyncio.Redis().pipeline()), {}),
    (ExactFilter, "client", (redis.asyncio.Redis(),), {}),
    (DistinctCounter, "client", (redis.asyncio.RedisCluster("127.0.0.1", 1),), {}),
    (TimeBloom, "name", ("", "a{b", "a}b", "{news}", b"news", None, "\ud800"), {}),
    *(
        (kind, "prefix", ("{app}", "a}", "a b", "a\n", "\ud800", "\0", b"app1:", None, 1), {})
        for kind in (TimeBloom, ExactFilter, DistinctCounter)
    ),
    (TimeBloom, "capacity", (0, -1, True, 1e6, "1000", 10**16), {}),
    (TimeBloom, "error_rate", (0, 1.0, 2, -1, "x", math.nan, math.inf, True), {}),
    (TimeBloom, "hashes", (0, -1, 65, True, 6.0, "6"), {"bits": 2**16}),
    (TimeBloom, "shards", (0, -1, 2**14 + 1, True, 2.0, "2"), {}),
    (TimeBloom, "grow", (1, None, "yes"), {}),
    (TimeBloom, "granularity", ("day",), {}),
    (TimeBloom, "cache_size", (-1, 1.5), {}),
    (TimeBloom, "cache_ttl", (-1, "a"), {}),
    (TimeBloom, "session_ttl", (86_400.5,), {}),
    (TimeBloom, "secret", (b"", b"15 bytes, short", 65 * b"x", "text"), {}),
    (TimeBloom, "slices", (7, True), {"granularity": None}),
    (TimeBloom, "tz", ("Europe/Berlin",), {"granularity": None}),
    (DistinctCounter, "granularity", (None, "x"), {"slices": 7}),
    (DistinctCounter, "slices", (None,), {"granularity": "d"}),
    (DistinctCounter, "tz", ("Europe/Berlin",), {}),
    (DistinctCounter, "max_members", (0, True, "9", 2**32 + 1), {}),
    (DistinctCounter, "max_members", (2,), {"mapping": None}),
    (DistinctCounter, "name", ("", "{a}", "a}", None, 7, "\ud800"), {}),
    (DistinctCounter, "mapping", ("", "{a}", "a}", 7, "\ud800"), {}),
    (DistinctCounter, "keep_members", (1,), {}),
    (DistinctCounter, "retry_for", (-1,), {}),
    (ExactFilter, "shards", (0, -1, 1.0, True, "2", None, 10**9), {}),
    (ExactFilter, "name", ("", "{a}", "a}", None, 7, "\ud800"), {}),
    (ExactFilter, "ttl", _NO_TTLS, {}),
]
_NO_URLS = (
    *("redis://127.0.0.1:abc", "redis://127.0.0.1:99999", "redis://[::1", "redis://127.0.0.1?db=x"),
    *("redis+cluster://127.0.0.1:abc", "redis://127.0.0.1?max_connections=-3"),
    *("redis://127.0.0.1?protocol=x", "redis://127.0.0.1?socket_timeout=x"),
    "redis://127.0.0.1?nonsense=1",
)
#: A call, and the argument that the error names.
CALLS: dict[str, list[Callable[[Any], Any]]] = {
    "note": [
        lambda seen: seen.claim("a", note=1),
        lambda seen: seen.claim("a", note="x" * 65_537),
        lambda seen: seen.claim("a", note="\ud800"),
    ],
    "notes": [
        lambda seen: seen.claim_many(["a", "b"], notes=["one"]),
        lambda seen: seen.push_many(["a"], []),
        lambda seen: seen.push("a", ""),
    ],
    "histories": [
        lambda seen, wrong=wrong: seen.note_history({"a": wrong})
        for wrong in ("q", Note("a"), None)
    ],
    "reason": [lambda seen, wrong=wrong: seen.fail("a", wrong) for wrong in ("", None, 503)],
    "failures": [lambda seen: seen.fail("a", "status/503", failures=0)],
    "limit": [lambda seen, limit=limit: seen.take(limit) for limit in (-1, True, 1.5, "2")],
    "within": [
        lambda seen: seen.add("a", within=0),
        lambda seen: seen.contains("a", within=8),
        lambda seen: seen.claim("a", within="1"),
        lambda seen: seen.add("a", keep=2, within=2),
    ],
    "keep": [
        *(lambda seen, keep=keep: seen.add("a", keep=keep) for keep in (0, 8, -1, True, 1.5, "2")),
        lambda seen: seen.commit("a", keep=0),
    ],
    "ttl": [
        *(lambda seen, ttl=ttl: seen.add("a", ttl=ttl) for ttl in _NO_TTLS),
        lambda seen: seen.add_many(["a"], ttl=0),
    ],
}


@pytest.mark.parametrize(
    ("kind", "argument", "value", "given"),
    [
        (kind, argument, value, given)
        for kind, argument, values, given in CLASSES
        for value in values
    ],
    ids=lambda value: ascii(getattr(value, "__name__", value))[:20],
)
def test_a_bad_argument_of_a_class_is_named(
    kind: Any, argument: str, value: Any, given: dict[str, Any]
) -> None:
    arguments = {"client": redis.Redis(), "name": "news", **given, argument: value}
    assert refused(lambda: kind(**arguments)) == argument


@pytest.mark.parametrize(
    "url", ["", "redis:", "redis://h\n/0", "//", 5, None, b"redis://h", "x" * 9999, *_NO_URLS]
)
@pytest.mark.parametrize("kind", [TimeBloom, AsyncTimeBloom])
def test_an_invalid_url_is_named(kind: Any, url: Any) -> None:
    assert refused(lambda: kind.from_url(url, "news")) == "url"


@pytest.mark.parametrize("argument", CALLS)
def test_a_bad_argument_of_a_verb_changes_nothing(
    client: redis.Redis, name: str, argument: str
) -> None:
    seen = (ExactFilter if argument == "ttl" else TimeBloom)(client, name)
    for call in CALLS[argument]:
        assert refused(lambda call=call: call(seen)) == argument
    assert [] == client.keys(f"*{name}*")
