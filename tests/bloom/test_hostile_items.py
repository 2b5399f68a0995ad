"""Items from anywhere: whatever bytes they are, they are data to the client, the scripts and the server."""

from __future__ import annotations

from itertools import count

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st

from tbloom import ConfigError, TimeBloom

#: Text that a parser on the way might take for its own syntax.
SNIPPETS = [
    b"\0",
    b"\xff" * 16,
    b"\r\n",
    b"*1\r\n$8\r\nFLUSHALL\r\n",
    b"$-1\r\n",
    b"'); redis.call('FLUSHALL') --",
    b"]] return redis.call('FLUSHALL') --[[",
    b"{other}:config",
    b"}{",
    b"64 65 66|67",
    b"1:1",
    b"%s%n%(spider)s",
    "e\u0301".encode(),
    "\U0001f577\u200d\U0001f578".encode(),
    "\N{RIGHT-TO-LEFT OVERRIDE}".encode(),
]
_unicode = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
_items = st.binary(min_size=1, max_size=200) | _unicode.map(str.encode) | st.sampled_from(SNIPPETS)
#: Up to 1 MB.
_long_items = st.builds(
    lambda item, size: (item * (size // len(item) + 1))[:size], _items, st.integers(1, 1 << 20)
)
_numbers = count()


@given(_items | _long_items)
@example(b"\0" * (1 << 20))
@example(b"a")
def test_every_item_is_new_once_and_only_the_filters_keys_exist(
    own: redis.Redis, item: bytes
) -> None:
    name = f"items-{next(_numbers)}"
    own.flushall()
    seen = TimeBloom(own, name, capacity=1000)
    assert [False, True, False] == [item in seen, seen.add(item), seen.add(item)]
    assert [True, False] == [item in seen, b"not " + item in seen]
    assert [False, True] == seen.add_many([item, b"not " + item])
    keys = own.keys()
    assert keys
    assert all(key.startswith(f"{{{name}}}:".encode()) for key in keys), keys


@given(_unicode)
def test_a_str_and_its_utf8_bytes_are_one_item(own: redis.Redis, text: str) -> None:
    seen = TimeBloom(own, f"items-{next(_numbers)}", capacity=1000)
    assert seen.add(text) is True
    assert seen.add(text.encode()) is False
    assert text in seen


@given(st.text(max_size=20), st.characters(categories=["Cs"]), st.text(max_size=20))
def test_a_lone_surrogate_is_refused(
    own: redis.Redis, before: str, surrogate: str, after: str
) -> None:
    own.flushall()
    seen = TimeBloom(own, "items", capacity=1000)
    for verb in (seen.add, seen.contains):
        with pytest.raises(ConfigError, match=r"^item: expected a str that UTF-8 can encode"):
            verb(before + surrogate + after)
    assert [] == own.keys()


@given(st.lists(_items, max_size=30))
def test_a_batch_is_as_good_as_its_items_one_by_one(own: redis.Redis, items: list[bytes]) -> None:
    seen = TimeBloom(own, f"items-{next(_numbers)}", capacity=1000)
    firsts = [item not in items[:i] for i, item in enumerate(items)]
    assert firsts == seen.add_many(items)
    assert [True] * len(items) == seen.contains_many(items)


@pytest.mark.check
def test_a_million_items_in_one_call(own: redis.Redis) -> None:
    """Measured once: 160 MB more memory at the peak.

    A server that is busy for long makes other crawlers wait. The slowlog's figure is printed and
    not asserted, because it is the machine's as much as ours: 6 to 13 ms on two busy cores.
    """
    own.flushall()
    own.config_set("slowlog-log-slower-than", 1000)
    own.slowlog_reset()
    rate = 0.05
    seen = TimeBloom(own, "million", capacity=10**6, slices=1, error_rate=rate, grow=False)
    new = seen.add_many(f"https://a.example/{i}" for i in range(10**6))
    assert 10**6 * (1 - rate) <= sum(new) < 10**6
    assert seen.info().items == sum(new)
    assert all(seen.contains_many(f"https://a.example/{i}" for i in range(10**6)))
    slowest = max((entry["duration"] for entry in own.slowlog_get(10_000)), default=0)
    print(f"a million items: the slowest call took {slowest} us")
