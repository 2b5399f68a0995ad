"""An argument that can't be right is named, with what would be right, and nothing has changed.

(Windows: test_window.py. Items: test_stores.py.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from tbloom import AsyncTimeBloom, ConfigError, ExactFilter, TimeBloom
from tests.helpers.hostile import refused

_REPLICAS = (-1, 1.0, "1", True, None, 1001)
_NO_TTLS = (
    *(0, -1, 0.0004, math.nan, math.inf, -math.inf, True, "60", b"60", 10**10, 10**400),
    *(timedelta(0), timedelta(days=-1), timedelta(days=40_000), [60]),
)
#: A class, an argument of it, and values that it can't have; a fourth thing is what else is given.
CLASSES: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = [
    (TimeBloom, "name", ("", "a{b", "a}b", "{news}", b"news", None, "\ud800"), {}),
    (TimeBloom, "capacity", (0, -1, True, 1e6, "1000", 10**16), {}),
    (TimeBloom, "error_rate", (0, 1.0, 2, -1, "x", math.nan, math.inf, True), {}),
    (TimeBloom, "hashes", (0, -1, 65, True, 6.0, "6"), {}),
    (TimeBloom, "shards", (0, -1, 2**14 + 1, True, 2.0, "2"), {}),
    (TimeBloom, "grow", (1, None, "yes"), {}),
    (TimeBloom, "granularity", ("day",), {}),
    (TimeBloom, "cache_size", (-1, 1.5), {}),
    (TimeBloom, "cache_ttl", (-1, "a"), {}),
    (TimeBloom, "replicas", _REPLICAS, {}),
    (TimeBloom, "secret", (b"", b"15 bytes, short", 65 * b"x", "text"), {}),
    (TimeBloom, "slices", (7, True), {"granularity": None}),
    (TimeBloom, "tz", ("Europe/Berlin",), {"granularity": None}),
    (ExactFilter, "replicas", _REPLICAS, {}),
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
    "notes": [lambda seen: seen.claim_many(["a", "b"], notes=["one"])],
    "limit": [lambda seen: seen.take_over(0)],
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
    "earlier": [lambda seen: seen.info("x")],
    "items": [lambda seen: seen.expect(-1)],
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
    arguments = {"name": "news", **given, argument: value}
    assert refused(lambda: kind(redis.Redis(), **arguments)) == argument


@pytest.mark.parametrize(
    "url", ["", "redis:", "redis://h\n", "//", 5, None, b"redis://h", "x" * 9999, *_NO_URLS]
)
@pytest.mark.parametrize("kind", [TimeBloom, AsyncTimeBloom])
def test_what_is_no_url_is_named(kind: Any, url: Any) -> None:
    assert refused(lambda: kind.from_url(url, "news")) == "url"


@pytest.mark.parametrize("argument", CALLS)
def test_a_bad_argument_of_a_verb_is_named_and_changes_nothing(
    client: redis.Redis, name: str, argument: str
) -> None:
    seen = TimeBloom(client, name)
    for call in CALLS[argument]:
        assert refused(lambda call=call: call(seen)) == argument
    assert [] == client.keys(f"*{name}*")


@pytest.mark.parametrize("ttl", _NO_TTLS, ids=lambda ttl: repr(ttl)[:20])
def test_a_bad_ttl_is_named_and_nothing_is_added(client: redis.Redis, name: str, ttl: Any) -> None:
    seen = ExactFilter(client, name)
    for call in (lambda: seen.add("a", ttl=ttl), lambda: seen.add_many(["a"], ttl=ttl)):
        with pytest.raises(ConfigError, match=r"^ttl: expected seconds, or a timedelta"):
            call()
    assert [] == client.keys(f"*{name}*")
