"""Names, parameters and URLs of every kind: they work, or a ConfigError names them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tbloom import AsyncTimeBloom, ConfigError, TimeBloom
from tbloom.engine.keys import Keys
from tests.helpers.hostile import anything, refused


def _all_keys(name: str, shards: int) -> set[str]:
    keys = Keys(name, shards)
    made = {keys.root}
    for shard in range(shards):
        made |= {keys.config(shard), keys.layout(shard), keys.lanes(shard) + "0123456789abcdef:0"}
        made |= {keys.slice("20190508", shard, part) for part in (0, 1)}
    return made


@given(st.text("ab:.01", min_size=1, max_size=6), st.text("ab:.01", min_size=1, max_size=6))
@example("a", "a:config")
@example("a", "a:layout")
@example("a", "a:lane:0123456789abcdef:0")
@example("a", "a:20190508:1")
@example("a", "a:0")
def test_two_names_share_no_key(one: str, other: str) -> None:
    """Whatever their shards: also if one has the name of a shard of the other."""
    assume(one != other)
    for shards in (1, 2, 9):
        for tag in {key[1 : key.index("}")] for key in _all_keys(one, shards)} - {one}:
            with suppress(ConfigError):  # a tag that can't be a name is as good
                assert not _all_keys(tag, 1) & _all_keys(one, shards)
        for others in (1, 2, 9):
            assert not _all_keys(one, shards) & _all_keys(other, others)


@given(anything)
def test_any_within_is_a_number_of_slices_or_a_config_error(within: Any) -> None:
    assume(within is not None and (type(within) is not int or not 1 <= within <= 7))
    seen = TimeBloom(redis.Redis(port=1), "fuzzed")
    for verb in (seen.add, seen.contains):
        assert "within" == refused(partial(verb, "a", within=within))


_BAD_URLS = [
    *("redis://127.0.0.1:abc", "redis://127.0.0.1:99999", "redis://[::1", "redis://127.0.0.1?db=x"),
    *("redis+cluster://127.0.0.1:abc", "redis://127.0.0.1?max_connections=-3"),
    *("redis://127.0.0.1?protocol=x", "redis://127.0.0.1?socket_timeout=x"),
    "redis://127.0.0.1?nonsense=1",
]


@pytest.mark.parametrize(
    "url", ["", "redis:", "redis://h\n", "//", 5, None, b"redis://h", "x" * 9999, *_BAD_URLS]
)
@pytest.mark.parametrize("ours", [TimeBloom, AsyncTimeBloom])
def test_what_is_no_url_is_refused(ours: Any, url: Any) -> None:
    assert "url" == refused(lambda: ours.from_url(url, "fuzzed"))
